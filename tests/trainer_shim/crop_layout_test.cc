#include "trainer_shim/crop_layout.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Model = v1::Model;

v1::Job JobOf(Model::ImageForm form) {
  v1::Job job;
  Model* model = job.mutable_model();
  model->set_patch(4);
  model->set_merge(2);
  model->set_temporal_patch(1);
  model->set_image_form(form);
  model->mutable_image_family()->set_rule(v1::ImageFamily::RULE_TILE_GRID);
  job.mutable_crop_shape()->set_max_patches(12);
  return job;
}

ImageRecord Crop(uint32_t image, uint64_t data, uint32_t grid_h,
                 uint32_t grid_w, uint32_t margin = 0) {
  ImageRecord crop = {};
  crop.image = image;
  crop.data = data;
  crop.grid_t = 1;
  crop.grid_h = grid_h;
  crop.grid_w = grid_w;
  crop.height = grid_h * 4 + margin;
  crop.width = grid_w * 4 + margin;
  crop.image_height = 1000 + image;
  crop.image_width = 2000 + image;
  return crop;
}

// Two samples: an image of two crops and one of one crop; an image of two.
std::vector<ImageRecord> FiveCrops() {
  return {Crop(0, 0, 2, 4), Crop(0, 512, 2, 2), Crop(1, 768, 4, 2),
          Crop(0, 0, 2, 4), Crop(0, 512, 2, 6)};
}

CropForm FormOf(const v1::Job& job) { return CropFormOf(job).value(); }

std::string Fault(v1::Job job) {
  return std::string(CropFormOf(job).status().message());
}

TEST(CropFormTest, QwensJobsHaveNoLists) {
  v1::Job job = JobOf(Model::IMAGE_FORM_UNSPECIFIED);
  job.mutable_model()->clear_image_family();
  job.mutable_model()->set_temporal_patch(2);
  const CropForm form = FormOf(job);
  EXPECT_EQ(form.rows, (PatchShape{4, 2, 2}));
  EXPECT_FALSE(form.tiles);
  EXPECT_FALSE(form.lists_crops);
  const ImageRecord dummy = DummyImageOf(form);
  EXPECT_EQ(dummy.grid_h, 2);
  EXPECT_EQ(dummy.width, 8);
  const CropLayout layout = LayOutCrops(FiveCrops(), form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 8, 12, 20, 28, 40));
  EXPECT_THAT(layout.imgs_sizes, IsEmpty());
  EXPECT_THAT(layout.crops_per_image, IsEmpty());
}

TEST(CropLayoutTest, RasterRowsArePatches) {
  const CropForm form = FormOf(JobOf(Model::IMAGE_FORM_RASTER));
  EXPECT_EQ(form.rows, (PatchShape{4, 1, 1}));
  const CropLayout layout = LayOutCrops(FiveCrops(), form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 8, 12, 20, 28, 40));
  EXPECT_THAT(layout.imgs_sizes, ElementsAre(8, 16, 8, 8, 16, 8, 8, 16, 8, 24));
  EXPECT_THAT(layout.crops_per_image, ElementsAre(2, 1, 2));
  EXPECT_THAT(layout.image_sizes, IsEmpty());
  EXPECT_THAT(layout.pixel_attention_mask, IsEmpty());
  // Sides that do not merge.
  EXPECT_TRUE(LayOutCrops({Crop(0, 0, 3, 5)}, form).ok());
}

TEST(CropLayoutTest, TilesAreAsLargeAsTheLargestCrop) {
  v1::Job job = JobOf(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_margin(1);
  job.mutable_model()->mutable_image_family()->set_rule(
      v1::ImageFamily::RULE_PINPOINTS);
  CropForm form = FormOf(job);
  EXPECT_EQ(DummyImageOf(form).height, 9);
  std::vector<ImageRecord> crops = {Crop(0, 0, 2, 4, 1), Crop(0, 512, 3, 1, 1),
                                    Crop(1, 768, 1, 2, 1)};
  crops.push_back(DummyImageOf(form));
  CropLayout layout = LayOutCrops(crops, form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(layout.shape.tile_h, 13);
  EXPECT_EQ(layout.shape.tile_w, 17);
  EXPECT_THAT(layout.crops_per_image, ElementsAre(2, 1, 1));
  EXPECT_THAT(layout.image_sizes, ElementsAre(1000, 2000, 1001, 2001, 9, 9));
  EXPECT_EQ(LayOutCrops({}, form)->shape.tile_h, 0);

  job.mutable_crop_shape()->set_tile(32);
  form = FormOf(job);
  EXPECT_EQ(LayOutCrops(crops, form)->shape.tile_w, 32);
  EXPECT_EQ(LayOutCrops({}, form)->shape.tile_h, 32);
}

TEST(CropLayoutTest, PaddedCropsHaveShapesAndAMask) {
  const CropForm form = FormOf(JobOf(Model::IMAGE_FORM_PADDED));
  EXPECT_EQ(form.rows, (PatchShape{4, 1, 1, true, 12}));
  const CropLayout layout =
      LayOutCrops({Crop(0, 0, 1, 3), Crop(1, 256, 3, 4)}, form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 12, 24));
  EXPECT_THAT(layout.spatial_shapes, ElementsAre(1, 3, 3, 4));
  std::vector<uint8_t> mask(24, 1);
  std::fill(mask.begin() + 3, mask.begin() + 12, 0);
  EXPECT_EQ(layout.pixel_attention_mask, mask);
  EXPECT_THAT(
      std::string(LayOutCrops({Crop(0, 0, 2, 7)}, form).status().message()),
      HasSubstr("image 0 of the packed shard has grid 2x7, wanted at "
                "most 12 patches"));
}

TEST(CropLayoutTest, MergedGridsAreMultiples) {
  const CropForm form = FormOf(JobOf(Model::IMAGE_FORM_MERGE_ORDER));
  const CropLayout layout = LayOutCrops(FiveCrops(), form).value();
  EXPECT_THAT(layout.crops_per_image, ElementsAre(2, 1, 2));
  EXPECT_THAT(layout.imgs_sizes, IsEmpty());
  EXPECT_THAT(
      std::string(LayOutCrops({Crop(0, 0, 2, 2), Crop(1, 256, 2, 3)}, form)
                      .status()
                      .message()),
      HasSubstr("image 1 of the packed shard has grid 2x3, wanted "
                "multiples of model.merge 2"));
}

TEST(CropFormTest, RefusesNumbers) {
  v1::Job job = JobOf(Model::IMAGE_FORM_PADDED);
  job.mutable_crop_shape()->set_max_patches(0);
  EXPECT_THAT(Fault(job), HasSubstr("crop_shape.max_patches is 0"));
  job = JobOf(Model::IMAGE_FORM_PADDED);
  job.mutable_model()->set_temporal_patch(2);
  EXPECT_THAT(Fault(job), HasSubstr("temporal_patch with image_form padded"));
  job = JobOf(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_margin(4);
  EXPECT_THAT(Fault(job), HasSubstr("crop_shape.margin is 4, wanted 0 to 3"));
  job = JobOf(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_dummy_grid_w(100000);
  EXPECT_THAT(Fault(job), HasSubstr("crop_shape.dummy_grid_w is 100000"));
  job = JobOf(static_cast<Model::ImageForm>(9));
  EXPECT_THAT(Fault(job), HasSubstr("model.image_form is 9"));
}

}  // namespace
}  // namespace ballast
