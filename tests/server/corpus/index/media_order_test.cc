#include "server/corpus/index/media_order.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// "i0 v0 i1" for two images and a video between them.
std::string Walk(uint64_t images, const std::vector<uint32_t>& behind) {
  std::vector<IndexedVideo> videos(behind.size());
  for (size_t i = 0; i < behind.size(); ++i) {
    videos[i] = {};
    videos[i].flags = IndexedVideo::kIsList;
    SetImagesBehind(behind[i], &videos[i]);
    EXPECT_EQ(videos[i].flags & 0xFF, IndexedVideo::kIsList);
    EXPECT_EQ(ImagesBehind(videos[i]), behind[i]);
  }
  std::string all;
  for (MediaOrder order(images, videos); order.Next();) {
    absl::StrAppend(&all, all.empty() ? "" : " ", order.is_video() ? "v" : "i",
                    order.number());
  }
  return all;
}

TEST(MediaOrderTest, VideosStandBeforeTheImagesBehindThem) {
  EXPECT_EQ(Walk(0, {}), "");
  EXPECT_EQ(Walk(2, {}), "i0 i1");
  EXPECT_EQ(Walk(0, {0, 0}), "v0 v1");
  EXPECT_EQ(Walk(2, {0, 0}), "i0 i1 v0 v1");
  EXPECT_EQ(Walk(2, {2, 1, 0}), "v0 i0 v1 i1 v2");
  EXPECT_EQ(Walk(3, {3, 3, 1}), "v0 v1 i0 i1 v2 i2");
}

// Whatever a damaged index says, each is walked once.
TEST(MediaOrderTest, NumbersThatCannotBe) {
  EXPECT_EQ(Walk(2, {9}), "v0 i0 i1");
  EXPECT_EQ(Walk(2, {0, 2}), "i0 i1 v0 v1");
}

TEST(MediaOrderTest, SettingReplaces) {
  IndexedVideo video = {};
  video.flags = IndexedVideo::kHasStart | IndexedVideo::kHasEnd;
  SetImagesBehind(10'000, &video);
  EXPECT_EQ(ImagesBehind(video), 10'000u);
  SetImagesBehind(0, &video);
  EXPECT_EQ(video.flags, IndexedVideo::kHasStart | IndexedVideo::kHasEnd);
}

}  // namespace
}  // namespace ballast
