#include "trainer_shim/host/batch_assembler.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/block/block_plan.h"
#include "tests/fakes/formula_block.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kStep = 3;

v1::Role RoleOf(v1::Module module, uint32_t rank) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  return role;
}

uint32_t DpOf(const SyntheticJob& job, v1::Module module) {
  return module == v1::MODULE_VISION ? job.vision_dp : job.language_dp;
}

// Changes a rank's block before it is assembled.
using Tamper = std::function<void(const BlockPlan&, uint32_t rank,
                                  absl::Span<uint8_t> block)>;

// Changes the schedule that every rank follows.
using Change = std::function<void(v1::StepSchedule*)>;

// Assembles all micro-batches of kStep on every rank of `module`, each in a
// thread of its own: result[rank][micro-batch]. A rank that fails aborts.
std::vector<std::vector<absl::StatusOr<PackedBatch>>> AssembleAll(
    const SyntheticJob& job, v1::Module module,
    PixelType pixel_type = PixelType::kFloat32, const Tamper& tamper = {},
    const Change& change = {}) {
  v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  if (change) change(&schedule);
  const uint32_t dp = DpOf(job, module);
  auto ends = InProcessGroup(dp);
  std::vector<std::vector<absl::StatusOr<PackedBatch>>> results(dp);
  const auto run = [&](uint32_t rank) {
    const v1::Role role = RoleOf(module, rank);
    const JobShape shape = ShapeOf(SyntheticJobMessage(job), role).value();
    BatchAssembler assembler(role, shape, pixel_type,
                             Normalisation::kTorchvision, ends[rank].get());
    for (uint32_t m = 0; m < job.micro_batches; ++m) {
      const BlockPlan plan =
          PlanBlock(schedule, m, role, shape.delivery, shape.block).value();
      AlignedBuffer block = FormulaBlock(plan, shape.block);
      if (tamper) tamper(plan, rank, block.bytes());
      const auto batch = assembler.Assemble(schedule, m, block.bytes());
      if (!batch.ok()) {
        ends[rank]->Abort(batch.status());
        results[rank].push_back(batch.status());
        return;
      }
      results[rank].push_back(**batch);
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < dp; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  return results;
}

class BatchAssemblerTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  SyntheticJob Job(v1::Delivery delivery) const {
    SyntheticJob job;
    std::tie(job.vision_dp, job.language_dp) = GetParam();
    job.delivery = delivery;
    return job;
  }
};

TEST_P(BatchAssemblerTest, ExchangeAndDirectAreByteIdentical) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
      const auto exchanged =
          AssembleAll(Job(v1::DELIVERY_EXCHANGE), module, type);
      const auto direct = AssembleAll(Job(v1::DELIVERY_DIRECT), module, type);
      uint64_t moved = 0;
      for (size_t rank = 0; rank < exchanged.size(); ++rank) {
        for (size_t m = 0; m < exchanged[rank].size(); ++m) {
          ASSERT_TRUE(exchanged[rank][m].ok()) << exchanged[rank][m].status();
          ASSERT_TRUE(direct[rank][m].ok()) << direct[rank][m].status();
          EXPECT_EQ(DigestOf(*exchanged[rank][m]), DigestOf(*direct[rank][m]));
          EXPECT_EQ(direct[rank][m]->bytes_moved, 0);
          moved += exchanged[rank][m]->bytes_moved;
        }
      }
      // Otherwise this would compare nothing.
      EXPECT_EQ(moved > 0, exchanged.size() > 1);
    }
  }
}

TEST_P(BatchAssemblerTest, TextStandsWhereTheFormulaSays) {
  const auto ranks =
      AssembleAll(Job(v1::DELIVERY_EXCHANGE), v1::MODULE_LANGUAGE);
  for (const auto& batches : ranks) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const size_t total = batch->input_ids.size();
      ASSERT_EQ(batch->cu_seqlens_padded.back(), total);
      for (size_t i = 0; i < batch->samples.size(); ++i) {
        const uint64_t position = batch->samples[i].position;
        const size_t begin = batch->cu_seqlens_padded[i];
        const size_t length = batch->cu_seqlens[i + 1] - batch->cu_seqlens[i];
        for (size_t t = 0; t < length; ++t) {
          EXPECT_EQ(batch->input_ids[begin + t], FormulaId(position, t));
          EXPECT_EQ(batch->labels[begin + t], FormulaLabel(position, t));
          for (size_t axis = 0; axis < 3; ++axis) {
            EXPECT_EQ(batch->position_ids[axis * total + begin + t],
                      FormulaPositionId(position, axis, t));
          }
        }
        for (size_t t = begin + length;
             t < static_cast<size_t>(batch->cu_seqlens_padded[i + 1]); ++t) {
          EXPECT_EQ(batch->input_ids[t], 7);
        }
      }
    }
  }
}

TEST_P(BatchAssemblerTest, PixelsStandWhereTheFormulaSays) {
  const SyntheticJob job = Job(v1::DELIVERY_EXCHANGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  constexpr size_t kPlane = 4 * 4, kRow = 3 * 2 * kPlane;
  for (const auto& batches : AssembleAll(job, v1::MODULE_VISION)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      size_t image = 0, row = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t images =
            columns.images(sample.position - columns.position(0));
        for (uint32_t k = 0; k < images; ++k, ++image) {
          const uint32_t h = batch->image_grid_thw[3 * image + 1];
          const uint32_t w = batch->image_grid_thw[3 * image + 2];
          for (uint32_t r = 0; r < h * w; ++r, ++row) {
            // The r-th patch in merged order, in raster order.
            const uint32_t token = r / 4;
            const uint32_t gh = token / (w / 2) * 2 + r % 4 / 2;
            const uint32_t gw = token % (w / 2) * 2 + r % 2;
            for (size_t value = 0; value < kRow; ++value) {
              const uint32_t c = value / (2 * kPlane);
              const uint8_t wanted =
                  FormulaPixel(sample.position, k, w, 4, gh * 4, gw * 4, c);
              ASSERT_EQ(batch->pixel_values[row * kRow + value],
                        table.floats(c)[wanted])
                  << "position " << sample.position << " image " << k
                  << " patch " << gh << "," << gw << " channel " << c;
            }
          }
        }
      }
      EXPECT_EQ(batch->pixel_values.size(), row * kRow);
      EXPECT_EQ(batch->image_grid_thw.size(), 3 * image);
      EXPECT_EQ(batch->totals.patches, row);
      EXPECT_EQ(batch->totals.images, image);
    }
  }
}

TEST_P(BatchAssemblerTest, ModulesHoldTheSameSamplesInTheSameOrder) {
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_OFF}) {
    std::vector<std::vector<std::string>> orders;
    PackedTotals sums[2];
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      const auto ranks = AssembleAll(Job(delivery), module);
      std::vector<std::string> order;
      for (uint32_t m = 0; m < 2; ++m) {
        PackedTotals sum;
        for (const auto& batches : ranks) {
          ASSERT_TRUE(batches[m].ok()) << batches[m].status();
          for (const PackedSample& sample : batches[m]->samples) {
            order.push_back(sample.name);
          }
          sum += batches[m]->totals;
        }
        EXPECT_EQ(sum, ranks[0][m]->micro_batch_totals);
        sums[module == v1::MODULE_VISION] += sum;
      }
      EXPECT_EQ(sums[module == v1::MODULE_VISION], ranks[0][0]->step_totals);
      orders.push_back(std::move(order));
    }
    EXPECT_EQ(orders[0], orders[1]);
    EXPECT_EQ(sums[0], sums[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    DataParallelSizes, BatchAssemblerTest,
    ::testing::ValuesIn(std::vector<std::tuple<uint32_t, uint32_t>>{
        {1, 1}, {2, 2}, {4, 4}, {2, 4}, {4, 2}, {2, 3}}),
    [](const auto& info) {
      return "vision" + std::to_string(std::get<0>(info.param)) + "language" +
             std::to_string(std::get<1>(info.param));
    });

// Rank 0 reads everything, so the others' blocks are empty.
TEST(BatchAssemblerEmptyTest, ARankMayReadNothing) {
  const auto rank_0_reads = [](v1::StepSchedule* schedule) {
    for (auto& columns : *schedule->mutable_micro_batches()) {
      for (auto& module : *columns.mutable_modules()) {
        for (uint32_t& reader : *module.mutable_reader()) reader = 0;
      }
    }
  };
  SyntheticJob job;
  job.vision_dp = job.language_dp = 3;
  SyntheticJob direct_job = job;
  direct_job.delivery = v1::DELIVERY_DIRECT;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const auto exchanged =
        AssembleAll(job, module, PixelType::kFloat32, {}, rank_0_reads);
    const auto direct = AssembleAll(direct_job, module);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      for (uint32_t m = 0; m < 2; ++m) {
        ASSERT_TRUE(exchanged[rank][m].ok()) << exchanged[rank][m].status();
        EXPECT_EQ(exchanged[rank][m]->bytes_read == 256, rank != 0);
        EXPECT_EQ(DigestOf(*exchanged[rank][m]), DigestOf(*direct[rank][m]));
      }
    }
  }
}

// The last rank owns nothing.
TEST(BatchAssemblerEmptyTest, AVisionRankMayOwnNothingALanguageRankMayNot) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = 3;
  job.samples_per_group = 1;
  job.uneven = true;
  for (const auto delivery : {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT}) {
    job.delivery = delivery;
    const auto vision = AssembleAll(job, v1::MODULE_VISION);
    for (uint32_t m = 0; m < 2; ++m) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(vision[rank][m].ok()) << vision[rank][m].status();
        EXPECT_FALSE(vision[rank][m]->samples.empty());
      }
      const auto& idle = vision[2][m];
      ASSERT_TRUE(idle.ok()) << idle.status();
      EXPECT_TRUE(idle->samples.empty());
      EXPECT_TRUE(idle->pixel_values.empty());
      EXPECT_TRUE(idle->image_grid_thw.empty());
      EXPECT_EQ(idle->vision_cu_seqlens, std::vector<int32_t>{0});
      EXPECT_EQ(idle->totals, PackedTotals());
    }
    EXPECT_THAT(AssembleAll(job, v1::MODULE_LANGUAGE)[2][0].status().message(),
                HasSubstr("empty packed shard"));
  }
}

class DummyImageTest : public ::testing::TestWithParam<v1::Delivery> {
 protected:
  DummyImageTest() { job_.delivery = GetParam(); }

  // Vision rank 1 adds a dummy to micro-batch 0.
  static void NameRank1(v1::StepSchedule* schedule) {
    schedule->mutable_micro_batches(0)->mutable_modules(0)->add_dummy_rank(1);
  }

  SyntheticJob job_;
};

TEST_P(DummyImageTest, StandsBehindTheRanksOwnImages) {
  for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
    const auto plain = AssembleAll(job_, v1::MODULE_VISION, type);
    const auto with = AssembleAll(job_, v1::MODULE_VISION, type, {}, NameRank1);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (uint32_t m = 0; m < 2; ++m) {
        ASSERT_TRUE(with[rank][m].ok()) << with[rank][m].status();
        PackedBatch batch = *with[rank][m];
        EXPECT_EQ(batch.dummy_image, rank == 1 && m == 0);
        EXPECT_EQ(batch.totals, plain[rank][m]->totals);
        EXPECT_EQ(batch.step_totals, plain[rank][m]->step_totals);
        if (batch.dummy_image) {
          EXPECT_NE(DigestOf(batch), DigestOf(*plain[rank][m]));
          // One token: 2x2 patches, each of 3 channels, 2 frames and 4x4
          // pixels of (128/255 - 0.5) / 0.25.
          constexpr size_t kValues = 2 * 2 * 3 * 2 * 4 * 4;
          constexpr float kGrey = (128 - 127.5f) / 63.75f;
          const bool bf16 = type == PixelType::kBfloat16;
          for (size_t i = 0; i < kValues; ++i) {
            if (bf16) {
              EXPECT_EQ(batch.pixel_values_bf16.back(), ToBfloat16(kGrey));
              batch.pixel_values_bf16.pop_back();
            } else {
              EXPECT_EQ(batch.pixel_values.back(), kGrey);
              batch.pixel_values.pop_back();
            }
          }
          for (const int64_t side : {2, 2, 1}) {
            EXPECT_EQ(batch.image_grid_thw.back(), side);
            batch.image_grid_thw.pop_back();
          }
          EXPECT_EQ(batch.vision_cu_seqlens.back(), batch.totals.patches + 4);
          batch.vision_cu_seqlens.pop_back();
          batch.dummy_image = false;
        }
        // All else is as if there were none.
        EXPECT_EQ(DigestOf(batch), DigestOf(*plain[rank][m]));
      }
    }
  }
}

TEST_P(DummyImageTest, MayBeAllThatARankHas) {
  job_.samples_per_group = 1;
  job_.uneven = GetParam() != v1::DELIVERY_OFF;
  const auto alone =
      AssembleAll(job_, v1::MODULE_VISION, PixelType::kFloat32, {}, NameRank1);
  ASSERT_TRUE(alone[1][0].ok()) << alone[1][0].status();
  EXPECT_TRUE(alone[1][0]->dummy_image);
  EXPECT_EQ(alone[1][0]->samples.empty(), job_.uneven);
  EXPECT_EQ(alone[1][0]->vision_cu_seqlens.back(),
            alone[1][0]->totals.patches + 4);
  EXPECT_GE(alone[1][0]->vision_max_seqlen, 4);
}

TEST_P(DummyImageTest, IsNoneOfALanguageRanks) {
  for (const auto& batches : AssembleAll(job_, v1::MODULE_LANGUAGE,
                                         PixelType::kFloat32, {}, NameRank1)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_FALSE(batch->dummy_image);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Deliveries, DummyImageTest,
                         ::testing::Values(v1::DELIVERY_EXCHANGE,
                                           v1::DELIVERY_DIRECT,
                                           v1::DELIVERY_OFF),
                         [](const auto& info) {
                           return v1::Delivery_Name(info.param);
                         });

TEST(BatchAssemblerFaultsTest, PlaceholderFlagsTravelWithTheirSample) {
  // Every reader marks the samples whose position is a multiple of 5.
  const auto mark = [](const BlockPlan& plan, uint32_t,
                       absl::Span<uint8_t> block) {
    for (uint32_t i = 0; i < plan.samples.size(); ++i) {
      if (plan.samples[i].record.position % 5 == 0) {
        MarkPlaceholder(plan, i, block);
      }
    }
  };
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    for (const auto& batches :
         AssembleAll({}, module, PixelType::kFloat32, mark)) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        for (const PackedSample& sample : batch->samples) {
          EXPECT_EQ(sample.placeholder, sample.position % 5 == 0);
        }
      }
    }
  }
}

TEST(BatchAssemblerFaultsTest, WrongBlocksFailOnEveryRank) {
  const auto wrong_step = [](const BlockPlan&, uint32_t rank,
                             absl::Span<uint8_t> block) {
    if (rank == 1) reinterpret_cast<BlockHeader*>(block.data())->step += 1;
  };
  for (const auto& batches :
       AssembleAll({}, v1::MODULE_LANGUAGE, PixelType::kFloat32, wrong_step)) {
    EXPECT_EQ(batches[0].status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(batches[0].status().message(),
                HasSubstr("step is 4, wanted 3"));
  }
  const auto no_block = [](const BlockPlan&, uint32_t rank,
                           absl::Span<uint8_t> block) {
    if (rank == 0) block[0] = 0;
  };
  for (const auto& batches :
       AssembleAll({}, v1::MODULE_LANGUAGE, PixelType::kFloat32, no_block)) {
    EXPECT_EQ(batches[0].status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(batches[0].status().message(), HasSubstr("magic"));
  }
}

TEST(BatchAssemblerFaultsTest, GridsThatDoNotMergeAreRefused) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = 1;
  v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  schedule.mutable_micro_batches(0)->set_grid_w(0, 3);
  const v1::Role role = RoleOf(v1::MODULE_VISION, 0);
  const JobShape shape = ShapeOf(SyntheticJobMessage(job), role).value();
  BatchAssembler assembler(role, shape, PixelType::kFloat32,
                           Normalisation::kTorchvision, nullptr);
  const AlignedBuffer block = FormulaBlock(
      PlanBlock(schedule, 0, role, job.delivery, shape.block).value(),
      shape.block);
  const absl::Status status =
      assembler.Assemble(schedule, 0, block.bytes()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("multiples of model.merge 2"));
}

// Two ranks that follow schedules of different samples but equal sizes.
TEST(BatchAssemblerFaultsTest, SamplesOfAnotherScheduleAreRefused) {
  const SyntheticJob job;
  auto ends = InProcessGroup(2);
  std::vector<absl::Status> answers(2);
  const auto run = [&](uint32_t rank) {
    v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
    if (rank == 1) {
      for (auto& n : *schedule.mutable_micro_batches(0)->mutable_ordinal()) {
        n += 1000;
      }
    }
    const v1::Role role = RoleOf(v1::MODULE_LANGUAGE, rank);
    const JobShape shape = ShapeOf(SyntheticJobMessage(job), role).value();
    BatchAssembler assembler(role, shape, PixelType::kFloat32,
                             Normalisation::kTorchvision, ends[rank].get());
    const AlignedBuffer block = FormulaBlock(
        PlanBlock(schedule, 0, role, job.delivery, shape.block).value(),
        shape.block);
    answers[rank] = assembler.Assemble(schedule, 0, block.bytes()).status();
  };
  std::thread peer(run, 1);
  run(0);
  peer.join();
  for (const absl::Status& status : answers) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("a peer follows another schedule"));
  }
}

}  // namespace
}  // namespace ballast
