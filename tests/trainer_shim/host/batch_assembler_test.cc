#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/trainer_shim/host/assemble_all.h"
#include "tests/trainer_shim/host/dp_sizes_test_base.h"
#include "trainer_shim/host/host_batch_maker.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

using BatchAssemblerTest = DpSizesTest;

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
          EXPECT_EQ(ComputeDigest(*exchanged[rank][m]),
                    ComputeDigest(*direct[rank][m]));
          EXPECT_EQ(direct[rank][m]->bytes_moved, 0);
          moved += exchanged[rank][m]->bytes_moved;
        }
      }
      // Otherwise the comparison would prove nothing.
      EXPECT_EQ(moved > 0, exchanged.size() > 1);
    }
  }
}

TEST_P(BatchAssemblerTest, TextLiesWhereTheFormulaSays) {
  const auto ranks =
      AssembleAll(Job(v1::DELIVERY_EXCHANGE), v1::MODULE_LANGUAGE);
  for (const auto& batches : ranks) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto ids = batch->Get<int64_t>("input_ids");
      const auto labels = batch->Get<int64_t>("labels");
      const auto positions = batch->Get<int64_t>("position_ids");
      const size_t total = ids.size();
      ASSERT_EQ(batch->text.cu_seqlens_padded.back(), total);
      for (size_t i = 0; i < batch->samples.size(); ++i) {
        const uint64_t position = batch->samples[i].position;
        const size_t begin = batch->text.cu_seqlens_padded[i];
        const size_t length =
            batch->text.cu_seqlens[i + 1] - batch->text.cu_seqlens[i];
        for (size_t t = 0; t < length; ++t) {
          EXPECT_EQ(ids[begin + t], FormulaId(position, t));
          EXPECT_EQ(labels[begin + t], FormulaLabel(position, t));
          for (size_t axis = 0; axis < 3; ++axis) {
            EXPECT_EQ(positions[axis * total + begin + t],
                      FormulaPositionId(position, axis, t));
          }
        }
        for (size_t t = begin + length;
             t < static_cast<size_t>(batch->text.cu_seqlens_padded[i + 1]);
             ++t) {
          EXPECT_EQ(ids[t], 7);
        }
      }
    }
  }
}

// Every rank's rows are as long as the longest sample of all ranks, and hold
// what the packed batch holds.
TEST_P(BatchAssemblerTest, PaddedRowsHoldThePackedSamples) {
  SyntheticJob job = Job(v1::DELIVERY_EXCHANGE);
  const auto packed = AssembleAll(job, v1::MODULE_LANGUAGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  job.padded = true;
  for (const uint32_t fixed : {0, 64}) {
    job.row_length = fixed;
    const auto padded = AssembleAll(job, v1::MODULE_LANGUAGE);
    for (size_t rank = 0; rank < padded.size(); ++rank) {
      for (size_t m = 0; m < padded[rank].size(); ++m) {
        ASSERT_TRUE(padded[rank][m].ok()) << padded[rank][m].status();
        const PackedBatch& rows = *padded[rank][m];
        const PackedBatch& row = *packed[rank][m];
        const auto& tokens = schedule.micro_batches(m).tokens();
        const size_t longest = *std::max_element(tokens.begin(), tokens.end());
        const size_t s = fixed > 0 ? fixed : (longest + 3) / 4 * 4;
        const size_t n = row.samples.size();
        EXPECT_TRUE(rows.padded);
        EXPECT_EQ(rows.max_seqlen, s);
        EXPECT_EQ(rows.totals.padded_tokens, n * s);
        ASSERT_EQ(rows.Get<int64_t>("input_ids").size(), n * s);
        ASSERT_EQ(rows.Get<int64_t>("position_ids").size(), 3 * n * s);
        ASSERT_EQ(rows.Get<uint8_t>("attention_mask").size(), n * s);
        for (size_t i = 0; i < n; ++i) {
          const size_t begin = row.text.cu_seqlens_padded[i];
          const size_t real =
              row.text.cu_seqlens[i + 1] - row.text.cu_seqlens[i];
          for (size_t t = 0; t < s; ++t) {
            const size_t at = i * s + t;
            const bool is_real = t < real;
            EXPECT_EQ(rows.Get<uint8_t>("attention_mask")[at], is_real);
            EXPECT_EQ(rows.Get<int64_t>("input_ids")[at],
                      is_real ? row.Get<int64_t>("input_ids")[begin + t] : 7);
            EXPECT_EQ(rows.Get<int64_t>("labels")[at],
                      is_real ? row.Get<int64_t>("labels")[begin + t] : -100);
            EXPECT_EQ(rows.Get<float>("loss_mask")[at],
                      is_real ? row.Get<float>("loss_mask")[begin + t] : 0);
            for (size_t axis = 0; axis < 3; ++axis) {
              EXPECT_EQ(
                  rows.Get<int64_t>("position_ids")[axis * n * s + at],
                  is_real
                      ? row.Get<int64_t>(
                            "position_ids")[axis * row.Get<int64_t>("input_ids")
                                                       .size() +
                                            begin + t]
                      : 0);
            }
          }
        }
      }
    }
  }
}

TEST_P(BatchAssemblerTest, PixelsLieWhereTheFormulaSays) {
  const SyntheticJob job = Job(v1::DELIVERY_EXCHANGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  constexpr size_t kPlane = 4 * 4, kRow = 3 * 2 * kPlane;
  for (const auto& batches : AssembleAll(job, v1::MODULE_VISION)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto pixels = batch->Get<float>("pixel_values");
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      size_t image = 0, row = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t images =
            columns.images(sample.position - columns.position(0));
        for (uint32_t k = 0; k < images; ++k, ++image) {
          const uint32_t h = batch->vision.image_grid_thw[3 * image + 1];
          const uint32_t w = batch->vision.image_grid_thw[3 * image + 2];
          for (uint32_t r = 0; r < h * w; ++r, ++row) {
            // The r-th patch in merged order, in raster order.
            const uint32_t token = r / 4;
            const uint32_t gh = token / (w / 2) * 2 + r % 4 / 2;
            const uint32_t gw = token % (w / 2) * 2 + r % 2;
            for (size_t value = 0; value < kRow; ++value) {
              const uint32_t c = value / (2 * kPlane);
              const uint8_t wanted =
                  FormulaPixel(sample.position, k, w, 4, gh * 4, gw * 4, c);
              ASSERT_EQ(pixels[row * kRow + value], table.floats(c)[wanted])
                  << "position " << sample.position << " image " << k
                  << " patch " << gh << "," << gw << " channel " << c;
            }
          }
        }
      }
      EXPECT_EQ(pixels.size(), row * kRow);
      EXPECT_EQ(batch->vision.image_grid_thw.size(), 3 * image);
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
        EXPECT_EQ(ComputeDigest(*exchanged[rank][m]),
                  ComputeDigest(*direct[rank][m]));
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
      EXPECT_TRUE(idle->Get<float>("pixel_values").empty());
      EXPECT_TRUE(idle->vision.image_grid_thw.empty());
      EXPECT_EQ(idle->vision.cu_seqlens, std::vector<int32_t>{0});
      EXPECT_EQ(idle->totals, PackedTotals());
    }
    EXPECT_THAT(AssembleAll(job, v1::MODULE_LANGUAGE)[2][0].status().message(),
                HasSubstr("empty packed shard"));
  }
}

// Dummy images, placeholders, and faulty blocks and schedules.

class DummyImageTest : public ::testing::TestWithParam<v1::Delivery> {
 protected:
  DummyImageTest() { job_.delivery = GetParam(); }

  // Vision rank 1 adds a dummy to micro-batch 0.
  static void NameRank1(v1::StepSchedule* schedule) {
    schedule->mutable_micro_batches(0)->mutable_modules(0)->add_dummy_rank(1);
  }

  SyntheticJob job_;
};

TEST_P(DummyImageTest, FollowsTheRanksOwnImages) {
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
          EXPECT_NE(ComputeDigest(batch), ComputeDigest(*plain[rank][m]));
          // One token: 2x2 patches, each with 3 channels, 2 frames and 4x4
          // pixels of (128/255 - 0.5) / 0.25.
          constexpr size_t kValues = 2 * 2 * 3 * 2 * 4 * 4;
          constexpr float kGrey = (128 - 127.5f) / 63.75f;
          const bool bf16 = type == PixelType::kBfloat16;
          const auto bits = batch.Get<uint16_t>("pixel_values");
          const auto floats = batch.Get<float>("pixel_values");
          for (size_t i = 1; i <= kValues; ++i) {
            if (bf16) {
              EXPECT_EQ(bits[bits.size() - i], ToBfloat16(kGrey));
            } else {
              EXPECT_EQ(floats[floats.size() - i], kGrey);
            }
          }
          for (const int64_t side : {2, 2, 1}) {
            EXPECT_EQ(batch.vision.image_grid_thw.back(), side);
            batch.vision.image_grid_thw.pop_back();
          }
          EXPECT_EQ(batch.vision.cu_seqlens.back(), batch.totals.patches + 4);
          batch.vision.cu_seqlens.pop_back();
          batch.crops.row_offsets.pop_back();
          batch.dummy_image = false;
          LayOutTensors(&batch);
        }
        // Everything else is as without a dummy image.
        EXPECT_EQ(ComputeDigest(batch), ComputeDigest(*plain[rank][m]));
      }
    }
  }
}

TEST_P(DummyImageTest, MayBeARanksOnlyImage) {
  job_.samples_per_group = 1;
  job_.uneven = GetParam() != v1::DELIVERY_OFF;
  const auto alone =
      AssembleAll(job_, v1::MODULE_VISION, PixelType::kFloat32, {}, NameRank1);
  ASSERT_TRUE(alone[1][0].ok()) << alone[1][0].status();
  EXPECT_TRUE(alone[1][0]->dummy_image);
  EXPECT_EQ(alone[1][0]->samples.empty(), job_.uneven);
  EXPECT_EQ(alone[1][0]->vision.cu_seqlens.back(),
            alone[1][0]->totals.patches + 4);
  EXPECT_GE(alone[1][0]->vision_max_seqlen, 4);
}

TEST_P(DummyImageTest, IsNotAddedToLanguageRanks) {
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
  const JobShape shape = GetShape(SyntheticJobMessage(job), role).value();
  BatchAssembler assembler(role, shape, PixelType::kFloat32,
                           Normalisation::kTorchvision, nullptr);
  const AlignedBuffer block = FormulaBlock(
      PlanBlock(schedule, 0, role, job.delivery, shape.block).value(),
      shape.block);
  PackedBatch batch;
  const absl::Status status = assembler.Assemble(
      GetStepInfo(schedule, shape.padding), 0, block.bytes(), &batch);
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
    const JobShape shape = GetShape(SyntheticJobMessage(job), role).value();
    BatchAssembler assembler(role, shape, PixelType::kFloat32,
                             Normalisation::kTorchvision, ends[rank].get());
    const AlignedBuffer block = FormulaBlock(
        PlanBlock(schedule, 0, role, job.delivery, shape.block).value(),
        shape.block);
    PackedBatch batch;
    answers[rank] = assembler.Assemble(GetStepInfo(schedule, shape.padding), 0,
                                       block.bytes(), &batch);
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
