#include "proto/block/payload_bytes.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

constexpr BlockGeometry kGeometry = {.patch = 14, .position_axes = 3};

uint64_t RoundUp(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

// docs/block.md: each image's pixels begin at a multiple of 256.
TEST(PayloadBytesTest, RoundsEachImageUp) {
  const std::vector<uint32_t> heights = {2, 4}, widths = {6, 10};
  EXPECT_EQ(PayloadBytes({9, heights, widths, {}}, Media::kImages, kGeometry),
            RoundUp(3 * 2 * 6 * 196) + RoundUp(3 * 4 * 10 * 196));
  EXPECT_EQ(PayloadBytes({9, {}, {}, {}}, Media::kImages, kGeometry), 0u);
}

// docs/block.md: a file takes its length instead of the pixels', be it smaller
// or larger.
TEST(PayloadBytesTest, CountsTheFilesOfEncodedImages) {
  const std::vector<uint32_t> heights = {2, 4, 2}, widths = {6, 10, 2};
  const std::vector<uint32_t> encoded = {1000, 0, 5000};
  EXPECT_EQ(
      PayloadBytes({9, heights, widths, encoded}, Media::kImages, kGeometry),
      RoundUp(1000) + RoundUp(3 * 4 * 10 * 196) + RoundUp(5000));
  const uint64_t language =
      PayloadBytes({9, heights, widths, {}}, Media::kText, kGeometry);
  EXPECT_EQ(
      PayloadBytes({9, heights, widths, encoded}, Media::kText, kGeometry),
      language);
}

// docs/block.md: a crop is grid * patch + margin pixels high and wide; its
// record names the image that it is of.
TEST(PayloadBytesTest, LaysOutTheCropsOfEachImage) {
  constexpr BlockGeometry kMargin = {
      .patch = 14, .position_axes = 1, .margin = 6};
  const std::vector<uint32_t> heights = {2, 4, 3}, widths = {6, 1, 2};
  const std::vector<uint32_t> crops = {2, 1};
  const std::vector<uint32_t> image_height = {100, 300}, image_width = {200, 7};
  const PayloadRow row = {9,     heights,      widths,     {},
                          crops, image_height, image_width};
  std::vector<ImageRecord> records;
  AppendCrops(row, kMargin, &records);
  ASSERT_EQ(records.size(), 3u);
  uint64_t offset = 0;
  for (size_t i = 0; i < 3; ++i) {
    const ImageRecord& record = records[i];
    EXPECT_EQ(record.data, offset);
    EXPECT_EQ(record.grid_t, 1u);
    EXPECT_EQ(record.grid_h, heights[i]);
    EXPECT_EQ(record.grid_w, widths[i]);
    EXPECT_EQ(record.height, heights[i] * 14 + 6);
    EXPECT_EQ(record.width, widths[i] * 14 + 6);
    EXPECT_EQ(record.image, i < 2 ? 0u : 1u);
    EXPECT_EQ(record.image_height, i < 2 ? 100u : 300u);
    EXPECT_EQ(record.image_width, i < 2 ? 200u : 7u);
    EXPECT_EQ(record.seconds_per_patch, 0);
    offset += RoundUp(3 * (heights[i] * 14 + 6) * (widths[i] * 14 + 6));
  }
  EXPECT_EQ(PayloadBytes(row, Media::kImages, kMargin), offset);
}

// docs/block.md: frames of a video are crops whose records have its temporal
// patches and their seconds.
TEST(PayloadBytesTest, LaysOutTheFramesOfAVideo) {
  v1::MicroBatchSchedule micro_batch;
  micro_batch.add_images(2);
  micro_batch.add_tokens(1);
  for (const uint32_t crops : {1, 3}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 2}) micro_batch.add_grid_t(t);
  for (const float seconds : {0.0f, 0.75f}) {
    micro_batch.add_seconds_per_patch(seconds);
  }
  for (const uint32_t side : {1, 2, 2, 2}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  std::vector<ImageRecord> records;
  AppendCrops(RowOf(micro_batch, FirstEntriesOf(micro_batch), 0), kGeometry,
              &records);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_FALSE(IsFrame(records[0]));
  EXPECT_EQ(records[0].grid_t, 1u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(IsFrame(records[i]));
    EXPECT_EQ(records[i].grid_t, 2u);
    EXPECT_EQ(records[i].seconds_per_patch, 0.75f);
    EXPECT_EQ(records[i].image, 1u);
    EXPECT_EQ(records[i].data, RoundUp(588) + (i - 1) * RoundUp(4 * 588));
  }
}

// Of a video without seconds between its patches, frames are crops as an
// image's are.
TEST(PayloadBytesTest, FramesWithoutSecondsAreCrops) {
  v1::MicroBatchSchedule micro_batch;
  micro_batch.add_images(2);
  micro_batch.add_tokens(1);
  for (const uint32_t crops : {2, 3}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 3}) micro_batch.add_grid_t(t);
  micro_batch.mutable_seconds_per_patch()->Resize(2, 0);
  for (int i = 0; i < 5; ++i) {
    micro_batch.add_grid_h(2);
    micro_batch.add_grid_w(2);
  }
  std::vector<ImageRecord> records;
  AppendCrops(RowOf(micro_batch, FirstEntriesOf(micro_batch), 0), kGeometry,
              &records);
  ASSERT_EQ(records.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(IsFrame(records[i]));
    EXPECT_EQ(records[i].grid_t, 1u);
    EXPECT_EQ(records[i].image, i < 2 ? 0u : 1u);
  }
}

// Ids, labels and positions are int32 arrays at multiples of 16.
TEST(PayloadBytesTest, CountsTheArraysOfALanguageSample) {
  const auto array = [](uint64_t entries) {
    return (4 * entries + 15) / 16 * 16;
  };
  for (const uint32_t tokens : {1u, 9u, 1000u}) {
    EXPECT_EQ(PayloadBytes({tokens, {}, {}, {}}, Media::kText, kGeometry),
              RoundUp(2 * array(tokens) + 4 * uint64_t{3} * tokens));
  }
}

TEST(PayloadBytesTest, ReadsTheRowsOfAMicroBatch) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {1, 0, 2}) {
    micro_batch.add_images(images);
    micro_batch.add_tokens(1);
  }
  for (const uint32_t side : {1, 2, 3}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  EXPECT_THAT(
      PayloadBytes(micro_batch, Media::kImages, kGeometry),
      ElementsAre(RoundUp(588), 0, RoundUp(4 * 588) + RoundUp(9 * 588)));
  for (const uint32_t bytes : {300, 0, 700})
    micro_batch.add_encoded_bytes(bytes);
  EXPECT_THAT(PayloadBytes(micro_batch, Media::kImages, kGeometry),
              ElementsAre(RoundUp(300), 0, RoundUp(4 * 588) + RoundUp(700)));
}

TEST(PayloadBytesTest, ReadsTheCropsOfAMicroBatch) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {1, 0, 2}) {
    micro_batch.add_images(images);
    micro_batch.add_tokens(1);
  }
  for (const uint32_t crops : {2, 1, 1}) micro_batch.add_crops(crops);
  for (const uint32_t side : {1, 2, 3, 4}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(side);
  }
  EXPECT_THAT(PayloadBytes(micro_batch, Media::kImages, kGeometry),
              ElementsAre(RoundUp(588) + RoundUp(4 * 588), 0,
                          RoundUp(9 * 588) + RoundUp(16 * 588)));
  const PayloadRow last = RowOf(micro_batch, FirstEntriesOf(micro_batch), 2);
  EXPECT_THAT(last.grid_h, ElementsAre(3, 4));
  EXPECT_THAT(last.crops, ElementsAre(1, 1));
  EXPECT_TRUE(last.image_height.empty());
}

}  // namespace
}  // namespace ballast
