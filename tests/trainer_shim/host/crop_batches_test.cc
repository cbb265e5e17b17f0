#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/schedule_table.h"
#include "tests/trainer_shim/host/assemble_all.h"
#include "trainer_shim/host/host_batch_maker.h"

// Batches of families whose images have several crops, in each form.

namespace ballast {
namespace {

using Form = v1::Model::ImageForm;

constexpr uint32_t kPatch = 4;

SyntheticJob JobOf(Form form, v1::Delivery delivery, uint32_t dp = 3) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = dp;
  job.form = form;
  job.delivery = delivery;
  return job;
}

class CropBatchesTest : public ::testing::TestWithParam<Form> {};

TEST_P(CropBatchesTest, DeliveriesAreByteIdentical) {
  for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
    ExpectSameInEveryDelivery(JobOf(GetParam(), v1::DELIVERY_EXCHANGE, 4),
                              v1::MODULE_VISION, type, RankOneAddsADummy(0));
  }
}

// The value that a batch must have at one place of a crop.
class Oracle {
 public:
  Oracle(const PackedBatch& batch, uint64_t crop)
      : batch_(batch), shape_(batch.crops.shape) {
    grid_w_ = batch.vision.image_grid_thw[3 * crop + 2];
    patches_ = batch.vision.image_grid_thw[3 * crop + 1] * grid_w_;
    height_ = batch.crops.imgs_sizes[2 * crop];
    width_ = batch.crops.imgs_sizes[2 * crop + 1];
  }

  // Row and column of pixel_values, counted from the crop's first row. False:
  // a zero of padding.
  bool GetPixel(uint64_t row, uint64_t column, uint32_t* y, uint32_t* x,
                uint32_t* c) const {
    if (batch_.crops.tiles) {
      *c = column / (shape_.tile_h * shape_.tile_w);
      *y = column / shape_.tile_w % shape_.tile_h;
      *x = column % shape_.tile_w;
      return *y < height_ && *x < width_;
    }
    if (row >= patches_) return false;
    constexpr uint32_t kPlane = kPatch * kPatch;
    const uint32_t pixel = shape_.channels_last ? column / 3 : column % kPlane;
    *c = shape_.channels_last ? column % 3
                              : column / (shape_.temporal_patch * kPlane);
    *y = row / grid_w_ * kPatch + pixel / kPatch;
    *x = row % grid_w_ * kPatch + pixel % kPatch;
    return true;
  }

  uint32_t grid_w() const { return grid_w_; }
  uint32_t height() const { return height_; }
  uint32_t width() const { return width_; }

 private:
  const PackedBatch& batch_;
  const PatchShape& shape_;
  uint64_t patches_;
  uint32_t grid_w_;
  uint32_t height_;
  uint32_t width_;
};

TEST_P(CropBatchesTest, PixelsLieWhereTheFormulaSays) {
  const SyntheticJob job = JobOf(GetParam(), v1::DELIVERY_EXCHANGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const uint32_t margin = GetParam() == v1::Model::IMAGE_FORM_TILES ? 1 : 0;
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  const auto ranks = AssembleAll(job, v1::MODULE_VISION, PixelType::kFloat32,
                                 {}, RankOneAddsADummy(0));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& batch : ranks[rank]) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto pixels = batch->Get<float>("pixel_values");
      const CropLayout& crops = batch->crops;
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      const FirstEntries first = GetFirstEntries(columns);
      const uint64_t values = crops.shape.row();
      ASSERT_EQ(pixels.size(), crops.rows() * values);
      uint64_t crop = 0;
      uint64_t image = 0;
      uint64_t patches = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t i = sample.position - columns.position(0);
        for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
          EXPECT_EQ(crops.crops_per_image[image], columns.crops(k));
          EXPECT_EQ(crops.image_sizes[2 * image], columns.image_height(k));
          EXPECT_EQ(crops.image_sizes[2 * image + 1], columns.image_width(k));
          ++image;
        }
        const uint32_t count = first.crop[i + 1] - first.crop[i];
        for (uint32_t k = 0; k < count; ++k, ++crop) {
          const Oracle oracle(*batch, crop);
          EXPECT_EQ(oracle.grid_w(), columns.grid_w(first.crop[i] + k));
          EXPECT_EQ(oracle.height(),
                    columns.grid_h(first.crop[i] + k) * kPatch + margin);
          EXPECT_EQ(batch->vision.cu_seqlens[crop], patches);
          patches += CropPatches(columns, first.crop[i] + k);
          const uint64_t begin = crops.row_offsets[crop];
          const uint64_t rows = crops.row_offsets[crop + 1] - begin;
          for (uint64_t at = 0; at < rows * values; ++at) {
            uint32_t y, x, c;
            float wanted = 0;
            if (oracle.GetPixel(at / values, at % values, &y, &x, &c)) {
              wanted = table.floats(c)[FormulaPixel(
                  sample.position, k, oracle.grid_w(), kPatch, y, x, c)];
            }
            ASSERT_EQ(pixels[begin * values + at], wanted)
                << "position " << sample.position << " crop " << k << " value "
                << at;
          }
        }
      }
      EXPECT_EQ(batch->totals.images, image);
      EXPECT_EQ(batch->totals.patches, patches);
      EXPECT_EQ(batch->dummy_image, rank == 1);
      ASSERT_EQ(crops.num_crops(), crop + (rank == 1));
      if (rank != 1) continue;
      EXPECT_EQ(crops.crops_per_image.back(), 1);
      EXPECT_EQ(Oracle(*batch, crop).height(), kPatch + margin);
      EXPECT_EQ(Oracle(*batch, crop).width(), 3 * kPatch + margin);
      EXPECT_EQ(batch->vision.cu_seqlens.back(), patches + 3);
      EXPECT_EQ(pixels[crops.row_offsets[crop] * values],
                table.floats(0)[kGreyPixel]);
    }
  }
}

// The tensors that a trainer sees.
TEST_P(CropBatchesTest, ListsTensors) {
  const SyntheticJob job = JobOf(GetParam(), v1::DELIVERY_DIRECT);
  for (const auto& batches : AssembleAll(job, v1::MODULE_VISION)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const std::vector<TensorView> tensors = batch->Views();
      std::vector<std::string> names;
      uint64_t values = 0;
      for (const TensorView& tensor : tensors) {
        names.push_back(tensor.name);
        const uint64_t count = tensor.shape.elements();
        if (names.back() == "pixel_values") values = count;
        if (names.back() == "pixel_attention_mask") {
          EXPECT_EQ(count, batch->crops.pixel_attention_mask.size());
          const auto* mask = static_cast<const uint8_t*>(tensor.data);
          EXPECT_EQ(std::count(mask, mask + count, 1), batch->totals.patches);
        }
      }
      EXPECT_EQ(values, batch->Get<float>("pixel_values").size());
      std::vector<std::string> wanted = {
          "pixel_values",      "image_grid_thw",         "image_grid_thw_host",
          "vision_cu_seqlens", "vision_cu_seqlens_host", "imgs_sizes",
          "imgs_sizes_host",   "crops_per_image",        "crops_per_image_host",
          "image_sizes",       "image_sizes_host"};
      if (GetParam() == v1::Model::IMAGE_FORM_PADDED) {
        wanted.insert(wanted.end(), {"spatial_shapes", "spatial_shapes_host",
                                     "pixel_attention_mask"});
      }
      EXPECT_EQ(names, wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CropBatchesTest,
    ::testing::Values(v1::Model::IMAGE_FORM_TILES, v1::Model::IMAGE_FORM_RASTER,
                      v1::Model::IMAGE_FORM_PADDED),
    [](const auto& info) {
      return v1::Model::ImageForm_Name(info.param).substr(11);
    });

// LLaVA-OneVision's frames: tiles apart from those of images.
TEST(TilesOfVideosTest, LieWhereTheFormulaSays) {
  SyntheticJob job = JobOf(v1::Model::IMAGE_FORM_TILES, v1::DELIVERY_EXCHANGE);
  job.videos = true;
  constexpr uint32_t kTile = 36;
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  uint64_t videos = 0;
  for (const auto& batches : AssembleAll(job, v1::MODULE_VISION)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      const FirstEntries first = GetFirstEntries(columns);
      const PatchShape& shape = batch->crops.shape;
      ASSERT_EQ(shape.tile_h, kTile);
      uint64_t row = 0, video = 0, images = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t i = sample.position - columns.position(0);
        uint32_t crop = 0;  // of the sample
        for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
          const uint32_t frames = columns.crops(k);
          if (columns.grid_t(k) == 0) {
            crop += frames;
            images += frames;
            continue;
          }
          const uint32_t h = columns.grid_h(first.crop[i] + crop);
          const uint32_t w = columns.grid_w(first.crop[i] + crop);
          const auto& grids = batch->videos.vision.image_grid_thw;
          EXPECT_EQ(grids[3 * video], frames);
          EXPECT_EQ(grids[3 * video + 1], h);
          EXPECT_EQ(grids[3 * video + 2], w);
          EXPECT_EQ(batch->videos.row_offsets[video], row);
          for (uint32_t frame = 0; frame < frames; ++frame, ++row, ++crop) {
            const float* const tile =
                batch->Get<float>("pixel_values_videos").data() +
                row * shape.row();
            for (uint32_t at = 0; at < shape.row(); ++at) {
              const uint32_t c = at / (kTile * kTile);
              const uint32_t y = at / kTile % kTile;
              const uint32_t x = at % kTile;
              const bool inside = y < h * kPatch + 1 && x < w * kPatch + 1;
              ASSERT_EQ(tile[at],
                        inside ? table.floats(c)[FormulaPixel(
                                     sample.position, crop, w, kPatch, y, x, c)]
                               : 0)
                  << "position " << sample.position << " frame " << frame;
            }
          }
          ++video;
        }
      }
      EXPECT_EQ(batch->videos.rows(), row);
      EXPECT_EQ(batch->Get<float>("pixel_values_videos").size(),
                row * shape.row());
      EXPECT_EQ(batch->crops.num_crops(), images + batch->dummy_image);
      EXPECT_EQ(batch->totals.videos, video);
      videos += video;
      const std::vector<TensorView> tensors = batch->Views();
      const auto pixels = std::find_if(
          tensors.begin(), tensors.end(), [](const TensorView& tensor) {
            return std::string(tensor.name) == "pixel_values_videos";
          });
      ASSERT_NE(pixels, tensors.end());
      EXPECT_EQ(pixels->shape.rank, 4u);
      EXPECT_EQ(pixels->shape.sides[0], static_cast<int64_t>(row));
      EXPECT_EQ(pixels->shape.sides[1], 3);
      EXPECT_EQ(pixels->shape.sides[3], kTile);
    }
  }
  EXPECT_GT(videos, 6u);
}

TEST(TilesOfVideosTest, DeliveriesAreByteIdentical) {
  std::vector<std::vector<std::string>> digests;
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID}) {
    SyntheticJob job = JobOf(v1::Model::IMAGE_FORM_TILES, delivery, 4);
    job.videos = true;
    std::vector<std::string>& all = digests.emplace_back();
    for (const auto& batches :
         AssembleAll(job, v1::MODULE_VISION, PixelType::kBfloat16, {},
                     RankOneAddsADummy(0))) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        all.push_back(ComputeDigest(*batch));
        const auto samples = SampleDigests(*batch);
        all.insert(all.end(), samples.begin(), samples.end());
      }
    }
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(digests[0], digests[2]);
}

// A sample's digest tells nothing of the crops beside it, whose sizes decide
// how large tiles are.
void ExpectDigestsOfSamplesAlone(const SyntheticJob& job) {
  std::vector<std::vector<std::string>> of_samples(2);
  for (int round = 0; round < 2; ++round) {
    for (const auto& batches : AssembleAll(
             job, v1::MODULE_VISION, PixelType::kBfloat16, {},
             [&](v1::StepSchedule* schedule) {
               // All samples on rank 0, then as scheduled.
               if (round == 1) return;
               for (auto& columns : *schedule->mutable_micro_batches()) {
                 for (auto& module : *columns.mutable_modules()) {
                   for (uint32_t& owner : *module.mutable_owner()) {
                     owner = 0;
                   }
                 }
               }
             })) {
      for (const auto& batch : batches) {
        ASSERT_TRUE(batch.ok()) << batch.status();
        const auto digests = SampleDigests(*batch);
        of_samples[round].insert(of_samples[round].end(), digests.begin(),
                                 digests.end());
      }
    }
    std::sort(of_samples[round].begin(), of_samples[round].end());
  }
  EXPECT_EQ(of_samples[0], of_samples[1]);
}

TEST(CropSampleDigestsTest, DoNotDependOnTheBatch) {
  ExpectDigestsOfSamplesAlone(
      JobOf(v1::Model::IMAGE_FORM_TILES, v1::DELIVERY_DIRECT));
}

// Nor of the frames of videos, which may be crops as those of images are.
TEST(CropSampleDigestsTest, CoverFrames) {
  for (const bool frames_are_crops : {true, false}) {
    SyntheticJob job = JobOf(v1::Model::IMAGE_FORM_TILES, v1::DELIVERY_DIRECT);
    job.videos = true;
    job.frames_are_crops = frames_are_crops;
    ExpectDigestsOfSamplesAlone(job);
  }
}

}  // namespace
}  // namespace ballast
