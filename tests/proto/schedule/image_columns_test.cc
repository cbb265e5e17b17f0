#include "proto/schedule/image_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;

TEST(ImageColumnsTest, AssignsImagesToSamplesInOrder) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t height : {2, 4, 65535}) micro_batch.add_grid_h(height);
  for (const uint32_t width : {3, 5, 65535}) micro_batch.add_grid_w(width);
  const FirstEntries first = FirstEntriesOf(micro_batch);
  EXPECT_THAT(first.image, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(first.crop, ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(CropsOf(micro_batch, 1), 1u);
  EXPECT_EQ(CropPatches(micro_batch, 1), 20u);
  EXPECT_THAT(SamplePatches(micro_batch),
              ElementsAre(6 + 20, 0, uint64_t{65535} * 65535));
}

TEST(ImageColumnsTest, CountsTheCropsOfEachImage) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t crops : {3, 1, 2}) micro_batch.add_crops(crops);
  for (const uint32_t side : {1, 2, 3, 4, 5, 6}) {
    micro_batch.add_grid_h(side);
    micro_batch.add_grid_w(2);
  }
  const FirstEntries first = FirstEntriesOf(micro_batch);
  EXPECT_THAT(first.image, ElementsAre(0, 2, 2, 3));
  EXPECT_THAT(first.crop, ElementsAre(0, 4, 4, 6));
  EXPECT_EQ(CropsOf(micro_batch, 0), 3u);
  EXPECT_THAT(SamplePatches(micro_batch),
              ElementsAre(2 + 4 + 6 + 8, 0, 10 + 12));
}

// An image of 6 patches; then a video of 5 frames in 3 temporal patches of 8
// patches each, and one of 2 frames in 1 of 20.
TEST(ImageColumnsTest, CountsTheTemporalPatchesOfAVideo) {
  v1::MicroBatchSchedule micro_batch;
  for (const uint32_t images : {2, 0, 1}) micro_batch.add_images(images);
  for (const uint32_t crops : {1, 5, 2}) micro_batch.add_crops(crops);
  for (const uint32_t t : {0, 3, 1}) micro_batch.add_grid_t(t);
  for (const uint32_t height : {2, 4, 4, 4, 4, 4, 5, 5}) {
    micro_batch.add_grid_h(height);
    micro_batch.add_grid_w(height == 2 ? 3 : height == 4 ? 2 : 4);
  }
  EXPECT_THAT(SamplePatches(micro_batch), ElementsAre(6 + 3 * 8, 0, 20));
  EXPECT_THAT(SampleVideos(micro_batch), ElementsAre(1, 0, 1));
  EXPECT_EQ(GridT(micro_batch, 0), 0u);
  EXPECT_EQ(GridT(micro_batch, 1), 3u);
}

TEST(ImageColumnsTest, AnEmptyMicroBatchHasNoImages) {
  EXPECT_THAT(FirstEntriesOf(v1::MicroBatchSchedule()).image, ElementsAre(0));
  EXPECT_THAT(FirstEntriesOf(v1::MicroBatchSchedule()).crop, ElementsAre(0));
  EXPECT_THAT(SamplePatches(v1::MicroBatchSchedule()), ElementsAre());
}

}  // namespace
}  // namespace ballast
