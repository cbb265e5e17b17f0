// Batches whose samples have videos beside their images.

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "proto/schedule/schedule_table.h"
#include "tests/trainer_shim/host/assemble_all.h"
#include "trainer_shim/host/host_batch_maker.h"

namespace ballast {
namespace {

constexpr uint32_t kPatch = 4;
constexpr uint32_t kMerge = 2;
constexpr uint32_t kTemporal = 2;

SyntheticJob JobOf(v1::Delivery delivery, uint32_t dp = 3) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = dp;
  job.videos = true;
  job.delivery = delivery;
  return job;
}

TEST(VideoBatchesTest, DeliveriesAreByteIdentical) {
  for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
    ExpectSameInEveryDelivery(JobOf(v1::DELIVERY_EXCHANGE, 4),
                              v1::MODULE_VISION, type, RankOneAddsADummy(0));
  }
}

// The value at `row` and `column` of an item whose frames begin with crop
// `crop` of its sample; `frames` of them, `h` x `w` patches each.
float Wanted(uint64_t position, uint32_t crop, uint32_t frames, uint32_t h,
             uint32_t w, uint64_t row, uint64_t column,
             const NormaliseTable& table) {
  const uint32_t pair = row / (h * w);
  const uint32_t patch = row % (h * w);
  const uint32_t token = patch / (kMerge * kMerge);
  const uint32_t within = patch % (kMerge * kMerge);
  const uint32_t gh = token / (w / kMerge) * kMerge + within / kMerge;
  const uint32_t gw = token % (w / kMerge) * kMerge + within % kMerge;
  const uint32_t pixel = column % (kPatch * kPatch);
  const uint32_t tp = column / (kPatch * kPatch) % kTemporal;
  const uint32_t c = column / (kPatch * kPatch) / kTemporal;
  const uint32_t frame = std::min(pair * kTemporal + tp, frames - 1);
  return table.floats(c)[FormulaPixel(position, crop + frame, w, kPatch,
                                      gh * kPatch + pixel / kPatch,
                                      gw * kPatch + pixel % kPatch, c)];
}

TEST(VideoBatchesTest, PixelsLieWhereTheFormulaSays) {
  const SyntheticJob job = JobOf(v1::DELIVERY_EXCHANGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  constexpr uint64_t kRow = 3 * kTemporal * kPatch * kPatch;
  uint64_t videos_seen = 0, odd_seen = 0, mixed_seen = 0;
  const auto ranks = AssembleAll(job, v1::MODULE_VISION, PixelType::kFloat32,
                                 {}, RankOneAddsADummy(0));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& batch : ranks[rank]) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      const FirstEntries first = GetFirstEntries(columns);
      uint64_t image = 0, video = 0, rows = 0, video_rows = 0;
      size_t segment = 0, video_segment = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t i = sample.position - columns.position(0);
        uint32_t crop = 0;  // of the sample
        bool images = false, videos = false;
        for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
          const uint32_t frames = columns.crops(k);
          const uint32_t h = columns.grid_h(first.crop[i] + crop);
          const uint32_t w = columns.grid_w(first.crop[i] + crop);
          const uint32_t t = columns.grid_t(k);
          const bool is_video = t != 0;
          (is_video ? videos : images) = true;
          const auto& grids = is_video ? batch->videos.vision.image_grid_thw
                                       : batch->vision.image_grid_thw;
          const auto& bounds = is_video ? batch->videos.vision.cu_seqlens
                                        : batch->vision.cu_seqlens;
          const auto values = batch->Get<float>(is_video ? "pixel_values_videos"
                                                         : "pixel_values");
          uint64_t& number = is_video ? video : image;
          uint64_t& begin = is_video ? video_rows : rows;
          size_t& bound = is_video ? video_segment : segment;
          EXPECT_EQ(grids[3 * number], is_video ? t : 1);
          EXPECT_EQ(grids[3 * number + 1], h);
          EXPECT_EQ(grids[3 * number + 2], w);
          if (is_video) {
            EXPECT_EQ(t, (frames + 1) / 2);
            EXPECT_EQ(batch->videos.second_per_grid_ts[video],
                      0.5f + sample.position);
            odd_seen += frames % 2;
          }
          const uint64_t count = uint64_t{std::max(t, 1u)} * h * w;
          for (uint64_t at = 0; at < count * kRow; ++at) {
            ASSERT_EQ(values[begin * kRow + at],
                      Wanted(sample.position, crop, frames, h, w, at / kRow,
                             at % kRow, table))
                << "position " << sample.position << " item " << k << " value "
                << at;
          }
          // Attention stays within a temporal patch.
          for (uint32_t pair = 0; pair < std::max(t, 1u); ++pair) {
            EXPECT_EQ(bounds[bound++], begin + pair * h * w);
          }
          begin += count;
          crop += frames;
          ++number;
        }
        mixed_seen += images && videos;
      }
      videos_seen += video;
      EXPECT_EQ(batch->videos.vision.cu_seqlens[video_segment], video_rows);
      EXPECT_EQ(batch->Get<float>("pixel_values_videos").size(),
                video_rows * kRow);
      EXPECT_EQ(batch->totals.images, image);
      EXPECT_EQ(batch->totals.videos, video);
      EXPECT_EQ(batch->totals.patches, rows + video_rows);
      // The dummy is the last image; videos do not move it.
      EXPECT_EQ(batch->dummy_image, rank == 1);
      ASSERT_EQ(batch->vision.image_grid_thw.size(), 3 * (image + (rank == 1)));
      EXPECT_EQ(batch->Get<float>("pixel_values").size(),
                (rows + 4 * (rank == 1)) * kRow);
      if (rank == 1) {
        EXPECT_EQ(batch->Get<float>("pixel_values")[rows * kRow],
                  table.floats(0)[kGreyPixel]);
      }
    }
  }
  EXPECT_GT(videos_seen, 6);
  EXPECT_GT(odd_seen, 0);
  EXPECT_GT(mixed_seen, 0);
}

// The tensors that a trainer sees, also where a rank has no video.
TEST(VideoBatchesTest, ListsTensors) {
  for (const bool videos : {true, false}) {
    SyntheticJob job = JobOf(v1::DELIVERY_DIRECT);
    job.videos = videos;
    for (const auto& batches :
         AssembleAll(job, v1::MODULE_VISION, PixelType::kBfloat16)) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        const std::vector<TensorView> tensors = batch->Views();
        std::map<std::string, TensorView> by_name;
        for (const TensorView& tensor : tensors) by_name[tensor.name] = tensor;
        EXPECT_EQ(by_name.count("pixel_values_videos"), videos);
        EXPECT_EQ(tensors.size(), videos ? 12 : 5);
        if (!videos) continue;
        const int64_t count = batch->totals.videos;
        const TensorView& pixels = by_name["pixel_values_videos"];
        EXPECT_EQ(pixels.type, ElementType::kBfloat16);
        EXPECT_EQ(pixels.shape.sides[0], batch->videos.rows());
        EXPECT_EQ(pixels.shape.sides[1], 96);
        EXPECT_EQ(pixels.data,
                  batch->Get<uint16_t>("pixel_values_videos").data());
        EXPECT_EQ(by_name["video_grid_thw_host"].shape.sides[0], count);
        EXPECT_EQ(by_name["video_grid_thw"].shape.sides[1], 3);
        EXPECT_EQ(by_name["second_per_grid_ts"].type, ElementType::kFloat32);
        EXPECT_EQ(by_name["second_per_grid_ts"].shape.sides[0], count);
        EXPECT_EQ(by_name["video_cu_seqlens"].shape.sides[0],
                  batch->videos.vision.cu_seqlens.size());
      }
    }
  }
}

// A micro-batch of text alone, and one of videos alone.
TEST(VideoBatchesTest, OneKindAlone) {
  for (const bool keeps_videos : {false, true}) {
    const auto keep = [&](v1::StepSchedule* schedule) {
      for (auto& columns : *schedule->mutable_micro_batches()) {
        const v1::MicroBatchSchedule all = columns;
        const FirstEntries first = GetFirstEntries(all);
        for (auto* column :
             {columns.mutable_grid_h(), columns.mutable_grid_w(),
              columns.mutable_crops(), columns.mutable_grid_t()}) {
          column->Clear();
        }
        columns.clear_seconds_per_patch();
        for (int i = 0; i < all.images_size(); ++i) {
          uint32_t kept = 0;
          uint32_t crop = first.crop[i];
          for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
            const bool keeps = keeps_videos && all.grid_t(k) != 0;
            for (uint32_t f = 0; f < all.crops(k); ++f, ++crop) {
              if (!keeps) continue;
              columns.add_grid_h(all.grid_h(crop));
              columns.add_grid_w(all.grid_w(crop));
            }
            if (!keeps) continue;
            ++kept;
            columns.add_crops(all.crops(k));
            columns.add_grid_t(all.grid_t(k));
            columns.add_seconds_per_patch(all.seconds_per_patch(k));
          }
          columns.set_images(i, kept);
        }
      }
    };
    uint64_t videos = 0;
    for (const auto& batches :
         AssembleAll(JobOf(v1::DELIVERY_EXCHANGE), v1::MODULE_VISION,
                     PixelType::kFloat32, {}, keep)) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        EXPECT_TRUE(batch->Get<float>("pixel_values").empty());
        EXPECT_EQ(batch->totals.images, 0);
        EXPECT_EQ(batch->videos.num_videos(), batch->totals.videos);
        EXPECT_EQ(batch->vision_max_seqlen, batch->videos.vision.max_seqlen);
        videos += batch->totals.videos;
      }
    }
    EXPECT_EQ(videos > 0, keeps_videos);
  }
}

// The plan of rows counts frames' patches, too: as many as the batch has.
TEST(VideoBatchesTest, RowsOfVideosHaveAPlan) {
  SyntheticJob job = JobOf(v1::DELIVERY_EXCHANGE);
  job.split = true;
  ExpectSameInEveryDelivery(job, v1::MODULE_VISION, PixelType::kFloat32,
                            RankOneAddsADummy(0));
  uint64_t videos = 0;
  for (const auto& batches :
       AssembleAll(job, v1::MODULE_VISION, PixelType::kFloat32)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const EmbeddingPlan& plan =
          FindPlan(batch->embeddings, v1::MODULE_VISION);
      const uint64_t sent =
          std::accumulate(plan.send.begin(), plan.send.end(), uint64_t{0});
      const size_t values = batch->Get<float>("pixel_values").size() +
                            batch->Get<float>("pixel_values_videos").size();
      EXPECT_EQ(sent * kMerge * kMerge * 3 * kTemporal * kPatch * kPatch,
                values);
      videos += batch->videos.num_videos();
    }
  }
  EXPECT_GT(videos, 0);
}

// Batches of an audio encoder.

SyntheticJob ClipJob(v1::Delivery delivery, uint32_t width) {
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
    ExpectSameInEveryDelivery(ClipJob(v1::DELIVERY_EXCHANGE, width),
                              v1::MODULE_AUDIO, PixelType::kFloat32,
                              RankOneAddsADummy(1));
  }
}

TEST(ClipBatchesTest, FeaturesLieWhereTheFormulaSays) {
  for (const uint32_t width : {10, 64}) {
    const SyntheticJob job = ClipJob(v1::DELIVERY_EXCHANGE, width);
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
