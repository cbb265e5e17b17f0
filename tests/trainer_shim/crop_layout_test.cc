#include "trainer_shim/crop_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

CropForm GetForm(const v1::Job& job) { return GetCropForm(job).value(); }

std::string GetFault(v1::Job job) {
  return std::string(GetCropForm(job).status().message());
}

TEST(CropFormTest, QwensJobsHaveNoLists) {
  v1::Job job = JobOf(Model::IMAGE_FORM_UNSPECIFIED);
  job.mutable_model()->clear_image_family();
  job.mutable_model()->set_temporal_patch(2);
  const CropForm form = GetForm(job);
  EXPECT_EQ(form.rows, (PatchShape{4, 2, 2}));
  EXPECT_FALSE(form.tiles);
  EXPECT_FALSE(form.lists_crops);
  const ImageRecord dummy = GetDummyImage(form);
  EXPECT_EQ(dummy.grid_h, 2);
  EXPECT_EQ(dummy.width, 8);
  const CropLayout layout = LayOutCrops(FiveCrops(), form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 8, 12, 20, 28, 40));
  EXPECT_THAT(layout.imgs_sizes, IsEmpty());
  EXPECT_THAT(layout.crops_per_image, IsEmpty());
}

TEST(CropLayoutTest, RasterRowsArePatches) {
  const CropForm form = GetForm(JobOf(Model::IMAGE_FORM_RASTER));
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
  CropForm form = GetForm(job);
  EXPECT_EQ(GetDummyImage(form).height, 9);
  std::vector<ImageRecord> crops = {Crop(0, 0, 2, 4, 1), Crop(0, 512, 3, 1, 1),
                                    Crop(1, 768, 1, 2, 1)};
  crops.push_back(GetDummyImage(form));
  CropLayout layout = LayOutCrops(crops, form).value();
  EXPECT_THAT(layout.row_offsets, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(layout.shape.tile_h, 13);
  EXPECT_EQ(layout.shape.tile_w, 17);
  EXPECT_THAT(layout.crops_per_image, ElementsAre(2, 1, 1));
  EXPECT_THAT(layout.image_sizes, ElementsAre(1000, 2000, 1001, 2001, 9, 9));
  EXPECT_EQ(LayOutCrops({}, form)->shape.tile_h, 0);

  job.mutable_crop_shape()->set_tile(32);
  form = GetForm(job);
  EXPECT_EQ(LayOutCrops(crops, form)->shape.tile_w, 32);
  EXPECT_EQ(LayOutCrops({}, form)->shape.tile_h, 32);
}

TEST(CropLayoutTest, PaddedCropsHaveShapesAndAMask) {
  const CropForm form = GetForm(JobOf(Model::IMAGE_FORM_PADDED));
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
  const CropForm form = GetForm(JobOf(Model::IMAGE_FORM_MERGE_ORDER));
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
  EXPECT_THAT(GetFault(job), HasSubstr("crop_shape.max_patches is 0"));
  job = JobOf(Model::IMAGE_FORM_PADDED);
  job.mutable_model()->set_temporal_patch(2);
  EXPECT_THAT(GetFault(job),
              HasSubstr("temporal_patch with image_form padded"));
  job = JobOf(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_margin(4);
  EXPECT_THAT(GetFault(job),
              HasSubstr("crop_shape.margin is 4, wanted 0 to 3"));
  job = JobOf(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_dummy_grid_w(100000);
  EXPECT_THAT(GetFault(job), HasSubstr("crop_shape.dummy_grid_w is 100000"));
  job = JobOf(static_cast<Model::ImageForm>(9));
  EXPECT_THAT(GetFault(job), HasSubstr("model.image_form is 9"));
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Model = v1::Model;

v1::Job VideoLayoutJob(uint32_t temporal = 2) {
  v1::Job job;
  Model* model = job.mutable_model();
  model->set_patch(4);
  model->set_merge(2);
  model->set_temporal_patch(temporal);
  model->mutable_video();
  return job;
}

CropForm GetVideoForm(const v1::Job& job) { return GetCropForm(job).value(); }

// Appends a video of `frames` frames as item `item` of its sample, `offset`
// bytes into the sample's payload. Returns the end of the video's bytes.
uint64_t AddVideo(uint32_t item, uint64_t offset, uint32_t frames,
                  uint32_t grid_t, uint32_t grid_h, uint32_t grid_w,
                  float seconds, std::vector<ImageRecord>* out) {
  for (uint32_t k = 0; k < frames; ++k) {
    ImageRecord frame = {};
    frame.data = offset;
    frame.grid_t = grid_t;
    frame.grid_h = grid_h;
    frame.grid_w = grid_w;
    frame.height = grid_h * 4;
    frame.width = grid_w * 4;
    frame.image = item;
    frame.seconds_per_patch = seconds;
    out->push_back(frame);
    offset += (3 * frame.height * frame.width + 255) / 256 * 256;
  }
  return offset;
}

// An image of 256 bytes as the first item of its sample.
ImageRecord Image() {
  ImageRecord image = {};
  image.grid_t = 1;
  image.grid_h = image.grid_w = 2;
  image.height = image.width = 8;
  return image;
}

// A sample of two videos, of five frames and of one, then a sample of one
// video.
std::vector<ImageRecord> ThreeVideos() {
  std::vector<ImageRecord> frames;
  const uint64_t end = AddVideo(0, 0, 5, 3, 2, 4, 1, &frames);
  AddVideo(1, end, 1, 1, 4, 2, 0.5f, &frames);
  AddVideo(0, 0, 2, 1, 2, 2, 0.25f, &frames);
  return frames;
}

// Then a sample with an image before its video.
std::vector<ImageRecord> FourVideos() {
  std::vector<ImageRecord> records = ThreeVideos();
  records.push_back(Image());
  AddVideo(1, 256, 2, 1, 2, 2, 0.25f, &records);
  return records;
}

std::string GetVideoFault(const std::vector<ImageRecord>& frames,
                          const v1::Job& job = VideoLayoutJob()) {
  return std::string(
      LayOutVideos(frames, GetVideoForm(job)).status().message());
}

TEST(VideoLayoutTest, RowsAndSegmentsByTemporalPatch) {
  const VideoLayout layout =
      LayOutVideos(FourVideos(), GetVideoForm(VideoLayoutJob())).value();
  EXPECT_TRUE(layout.listed);
  EXPECT_EQ(layout.num_videos(), 4);
  EXPECT_EQ(layout.rows(), 3 * 8 + 8 + 4 + 4);
  EXPECT_THAT(layout.vision.image_grid_thw,
              ElementsAre(3, 2, 4, 1, 4, 2, 1, 2, 2, 1, 2, 2));
  EXPECT_THAT(layout.vision.patch_offsets, ElementsAre(0, 24, 32, 36, 40));
  EXPECT_THAT(layout.vision.cu_seqlens, ElementsAre(0, 8, 16, 24, 32, 36, 40));
  EXPECT_EQ(layout.vision.max_seqlen, 8);
  EXPECT_THAT(layout.second_per_grid_ts, ElementsAre(1, 0.5f, 0.25f, 0.25f));
  std::vector<uint32_t> firsts, counts;
  std::vector<int64_t> rows;
  for (const TemporalPatch& patch : layout.patches) {
    firsts.push_back(patch.first);
    counts.push_back(patch.frames.count);
    rows.push_back(patch.first_row);
  }
  // The last frame of an odd number is alone.
  EXPECT_THAT(firsts, ElementsAre(0, 2, 4, 5, 6, 8));
  EXPECT_THAT(counts, ElementsAre(2, 2, 1, 1, 2, 2));
  EXPECT_THAT(rows, ElementsAre(0, 8, 16, 24, 32, 36));
  EXPECT_EQ(layout.patches[0].frames.stride, 512);  // 3 * 8 * 16 = 384
  EXPECT_EQ(layout.patches[4].frames.stride, 256);  // 3 * 8 * 8 = 192
  EXPECT_EQ(layout.patches[3].sides.height, 16);
  EXPECT_EQ(layout.patches[3].sides.grid_w, 2);
}

// Two samples whose videos have the same number and size, behind an image each:
// one frame at byte 256 and one at byte 512, which would be one video's second.
TEST(VideoLayoutTest, VideosOfTwoSamplesAreNotOne) {
  std::vector<ImageRecord> records = {Image()};
  AddVideo(1, 256, 1, 1, 2, 2, 1, &records);
  records.push_back(Image());
  records.back().height = 16;
  AddVideo(1, 512, 1, 1, 2, 2, 1, &records);
  const VideoLayout layout =
      LayOutVideos(records, GetVideoForm(VideoLayoutJob())).value();
  EXPECT_EQ(layout.num_videos(), 2);
  ASSERT_EQ(layout.patches.size(), 2);
  EXPECT_EQ(layout.patches[0].frames.count, 1);
  EXPECT_EQ(layout.patches[1].first, 1);
}

TEST(VideoLayoutTest, TemporalPatchesOfOtherLengths) {
  std::vector<ImageRecord> frames;
  AddVideo(0, 0, 5, 5, 2, 2, 1, &frames);
  EXPECT_EQ(
      LayOutVideos(frames, GetVideoForm(VideoLayoutJob(1)))->patches.size(), 5);
  frames.clear();
  AddVideo(0, 0, 5, 2, 2, 2, 1, &frames);
  const VideoLayout layout =
      LayOutVideos(frames, GetVideoForm(VideoLayoutJob(3))).value();
  ASSERT_EQ(layout.patches.size(), 2);
  EXPECT_EQ(layout.patches[0].frames.count, 3);
  EXPECT_EQ(layout.patches[1].frames.count, 2);
}

TEST(VideoLayoutTest, WithoutVideos) {
  const VideoLayout none =
      LayOutVideos({}, GetVideoForm(VideoLayoutJob())).value();
  EXPECT_TRUE(none.listed);
  EXPECT_EQ(none.rows(), 0);
  EXPECT_THAT(none.vision.cu_seqlens, ElementsAre(0));
  v1::Job job = VideoLayoutJob();
  job.mutable_model()->clear_video();
  const VideoLayout unlisted = LayOutVideos({}, GetVideoForm(job)).value();
  EXPECT_FALSE(unlisted.listed);
  EXPECT_EQ(unlisted.rows(), 0);
  EXPECT_THAT(unlisted.vision.cu_seqlens, IsEmpty());
  EXPECT_THAT(GetVideoFault(FourVideos(), job),
              HasSubstr("without model.video"));
}

TEST(VideoLayoutTest, RefusesFramesThatAreNoVideo) {
  const auto spoiled = [](size_t frame, auto spoil) {
    std::vector<ImageRecord> frames = FourVideos();
    spoil(&frames[frame]);
    return GetVideoFault(frames);
  };
  EXPECT_THAT(spoiled(2, [](ImageRecord* f) { f->height = 12; }),
              HasSubstr("video frame 2 of the packed shard differs"));
  EXPECT_THAT(spoiled(1, [](ImageRecord* f) { f->seconds_per_patch = 2; }),
              HasSubstr("video frame 1"));
  EXPECT_THAT(spoiled(3, [](ImageRecord* f) { f->encoded_bytes = 9; }),
              HasSubstr("video frame 3"));
  EXPECT_THAT(spoiled(0, [](ImageRecord* f) { f->encoded_bytes = 9; }),
              HasSubstr("travels encoded, in 9 bytes"));
  EXPECT_THAT(spoiled(2, [](ImageRecord* f) { f->data += 256; }),
              HasSubstr("begins at byte 1280, wanted 1024"));
  EXPECT_THAT(spoiled(5, [](ImageRecord* f) { f->grid_t = 2; }),
              HasSubstr("begins a video of 1 frames and 2 temporal patches, "
                        "wanted 1"));
  EXPECT_THAT(spoiled(5, [](ImageRecord* f) { f->grid_w = 3; }),
              HasSubstr("grid 4x3, wanted multiples of model.merge 2"));
  EXPECT_THAT(spoiled(5, [](ImageRecord* f) { f->height = 1 << 30; }),
              HasSubstr("wanted at most 2147483648"));
}

TEST(VideoFormTest, RefusesOtherForms) {
  const auto fault = [](auto change) {
    v1::Job job = VideoLayoutJob();
    change(job.mutable_model());
    return std::string(GetCropForm(job).status().message());
  };
  EXPECT_THAT(
      fault([](Model* m) { m->set_image_form(Model::IMAGE_FORM_RASTER); }),
      HasSubstr("model.video with model.image_form 3"));
  EXPECT_THAT(
      fault([](Model* m) { m->mutable_image_family()->set_name("internvl3"); }),
      HasSubstr("image family 'internvl3'"));
  EXPECT_THAT(fault([](Model* m) { m->set_decode(Model::DECODE_DEVICE); }),
              HasSubstr("model.video with model.decode device"));
  EXPECT_EQ(fault([](Model* m) { m->set_decode(Model::DECODE_HOST); }), "");
}

// A family's frames are tiles among those of images.
TEST(VideoFormTest, FramesOfAFamilyOfTilesAreNoVideos) {
  v1::Job job = VideoLayoutJob();
  Model& model = *job.mutable_model();
  model.mutable_image_family()->set_rule(v1::ImageFamily::RULE_TILE_GRID);
  model.set_image_form(Model::IMAGE_FORM_TILES);
  const auto form = GetCropForm(job);
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_TRUE(form->tiles);
  EXPECT_FALSE(form->videos);
  // No videos are known of tiles by another rule.
  model.mutable_image_family()->set_rule(v1::ImageFamily::RULE_FIXED_SIZE);
  EXPECT_THAT(std::string(GetCropForm(job).status().message()),
              HasSubstr("and for InternVL and LLaVA-OneVision, as tiles"));
  // Without the family nobody says which tiles are a video's.
  model.clear_image_family();
  EXPECT_THAT(std::string(GetCropForm(job).status().message()),
              HasSubstr("videos are packed for Qwen's models, in merge order, "
                        "and for InternVL and LLaVA-OneVision, as tiles"));
}

// LLaVA-OneVision's frames are tiles of their own: a row each.
v1::Job TilesOfVideos() {
  v1::Job job = VideoLayoutJob(/*temporal=*/1);
  job.mutable_model()->mutable_image_family()->set_rule(
      v1::ImageFamily::RULE_PINPOINTS);
  job.mutable_model()->set_image_form(Model::IMAGE_FORM_TILES);
  job.mutable_crop_shape()->set_tile(16);
  return job;
}

TEST(VideoFormTest, FramesMayBeTilesApart) {
  std::vector<ImageRecord> records = {Image()};
  const uint64_t end = AddVideo(1, 256, 3, 3, 3, 3, 0.5f, &records);
  AddVideo(2, end, 2, 2, 3, 3, 1, &records);
  const auto form = GetCropForm(TilesOfVideos());
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_TRUE(form->videos);
  const auto layout = LayOutVideos(records, *form);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->row_offsets, ElementsAre(0, 3, 5));
  EXPECT_EQ(layout->rows(), 5);
  EXPECT_THAT(layout->vision.image_grid_thw, ElementsAre(3, 3, 3, 2, 3, 3));
  // The tower attends within a frame.
  EXPECT_THAT(layout->vision.cu_seqlens, ElementsAre(0, 9, 18, 27, 36, 45));
  ASSERT_EQ(layout->patches.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(layout->patches[i].first, i);
    EXPECT_EQ(layout->patches[i].first_row, i);
    EXPECT_EQ(layout->patches[i].frames.count, 1u);
  }
}

TEST(VideoFormTest, RefusesTilesThatCannotBe) {
  std::vector<ImageRecord> records;
  AddVideo(0, 0, 1, 1, 5, 3, 1, &records);  // 20 pixels high
  EXPECT_THAT(GetVideoFault(records, TilesOfVideos()),
              HasSubstr("12x20 pixels, wanted at most a tile's, 16"));
  v1::Job job = TilesOfVideos();
  job.mutable_model()->set_temporal_patch(2);
  EXPECT_THAT(std::string(GetCropForm(job).status().message()),
              HasSubstr("model.temporal_patch with videos of tiles is 2"));
  job = TilesOfVideos();
  job.mutable_crop_shape()->clear_tile();
  EXPECT_THAT(std::string(GetCropForm(job).status().message()),
              HasSubstr("crop_shape.tile with videos is 0"));
}

}  // namespace

}  // namespace ballast
