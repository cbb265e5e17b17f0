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
  EXPECT_THAT(FirstImages(micro_batch), ElementsAre(0, 2, 2, 3));
  EXPECT_EQ(ImagePatches(micro_batch, 1), 20u);
  EXPECT_THAT(SamplePatches(micro_batch),
              ElementsAre(6 + 20, 0, uint64_t{65535} * 65535));
}

TEST(ImageColumnsTest, AnEmptyMicroBatchHasNoImages) {
  EXPECT_THAT(FirstImages(v1::MicroBatchSchedule()), ElementsAre(0));
  EXPECT_THAT(SamplePatches(v1::MicroBatchSchedule()), ElementsAre());
}

}  // namespace
}  // namespace ballast
