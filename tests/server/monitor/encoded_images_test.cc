#include "server/monitor/balance_board.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(EncodedImagesTest, CountsEveryMark) {
  ImageMarkCounts counts;
  counts.Add(ImageMark::Marked(700, ImageCheckResult::kClean));
  counts.Add(ImageMark::Marked(700, ImageCheckResult::kClean));
  counts.Add(ImageMark::Marked(800, ImageCheckResult::kUnsound));
  counts.Add(ImageMark::Marked(800, ImageCheckResult::kChanged));
  counts.Add(ImageMark::Marked(900));
  counts.Add(ImageMark());
  counts.Add(ImageMark::Refused(EngineRefusal::kProcess));
  const auto images = GetEncodedImages("docs", counts);
  EXPECT_EQ(images.source(), "docs");
  EXPECT_EQ(images.images(), 7);
  EXPECT_EQ(images.clean(), 2);
  EXPECT_EQ(images.unsound(), 1);
  EXPECT_EQ(images.changed(), 1);
  EXPECT_EQ(images.unchecked(), 1);
  ASSERT_EQ(images.refusals_size(), 2);
  EXPECT_EQ(images.refusals(0).reason(), "not judged");
  EXPECT_EQ(images.refusals(1).reason(), "not baseline of 8 bits");
  EXPECT_EQ(images.refusals(1).images(), 1);
}

}  // namespace
}  // namespace ballast
