// Dummy images, placeholders, and faulty blocks and schedules.

#include "trainer_shim/host/host_batch_maker.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer_shim/host/assemble_all.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

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
