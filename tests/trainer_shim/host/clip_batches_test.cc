
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "tests/trainer_shim/host/assemble_all.h"
#include "trainer_shim/host/host_batch_maker.h"

// Batches of an audio encoder.

namespace ballast {
namespace {

SyntheticJob JobOf(v1::Delivery delivery, uint32_t width) {
  SyntheticJob job;
  job.vision_dp = 2;
  job.audio_dp = 4;
  job.language_dp = 1;
  job.clip_width = width;
  job.delivery = delivery;
  return job;
}

TEST(ClipBatchesTest, DeliveriesAreByteIdentical) {
  for (const uint32_t width : {10, 64}) {
    ExpectSameInEveryDelivery(JobOf(v1::DELIVERY_EXCHANGE, width),
                              v1::MODULE_AUDIO, PixelType::kFloat32,
                              RankOneAddsADummy(1));
  }
}

TEST(ClipBatchesTest, FeaturesLieWhereTheFormulaSays) {
  for (const uint32_t width : {10, 64}) {
    const SyntheticJob job = JobOf(v1::DELIVERY_EXCHANGE, width);
    const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
    uint64_t clips_seen = 0;
    const auto ranks = AssembleAll(job, v1::MODULE_AUDIO, PixelType::kFloat32,
                                   {}, RankOneAddsADummy(1));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const auto& batch : ranks[rank]) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        const auto& columns = schedule.micro_batches(batch->micro_batch);
        const FirstEntries first = GetFirstEntries(columns);
        const auto values = batch->Get<float>("input_features");
        const auto lengths = batch->Get<int64_t>("audio_feature_lengths");
        const auto places = batch->Get<int32_t>("audio_cu_rows");
        size_t clip = 0;
        for (const PackedSample& sample : batch->samples) {
          const uint32_t i = sample.position - columns.position(0);
          for (uint32_t k = first.clip[i]; k < first.clip[i + 1]; ++k, ++clip) {
            const uint32_t rows = columns.clip_rows(k);
            EXPECT_EQ(lengths[clip], columns.clip_frames(k));
            ASSERT_EQ(places[clip + 1] - places[clip], rows);
            for (uint32_t at = 0; at < rows * width; ++at) {
              ASSERT_EQ(values[places[clip] * width + at],
                        FormulaFeature(sample.position, k - first.clip[i],
                                       at / width, at % width));
            }
          }
        }
        clips_seen += clip;
        EXPECT_EQ(batch->dummy_image, rank == 1);
        ASSERT_EQ(lengths.size(), clip + (rank == 1));
        EXPECT_EQ(values.size(), uint64_t{width} * places.back());
        for (uint64_t at = uint64_t{width} * places[clip]; at < values.size();
             ++at) {
          EXPECT_EQ(values[at], 0);
        }
        EXPECT_EQ(batch->totals.clips, clip);
      }
    }
    EXPECT_GT(clips_seen, 10);
  }
}

}  // namespace
}  // namespace ballast
