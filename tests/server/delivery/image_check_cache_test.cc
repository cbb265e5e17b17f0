#include "server/delivery/image_check_cache.h"

#include <optional>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ImageCheckCacheTest, ReturnsTheLastCheck) {
  ImageCheckCache cache;
  EXPECT_EQ(cache.Get(7), std::nullopt);
  cache.Put(7, ImageCheck{DataFault("cut")});
  EXPECT_EQ(cache.Get(7), ImageCheck{DataFault("cut")});
  cache.Put(7, ImageCheck{});
  EXPECT_EQ(cache.Get(7), ImageCheck{});
  EXPECT_EQ(cache.Get(7 + 64), std::nullopt);
}

TEST(ImageCheckCacheTest, RemembersTheLatestPositions) {
  ImageCheckCache cache;
  for (uint64_t position = 0; position <= ImageCheckCache::kMost; ++position) {
    cache.Put(position, ImageCheck{});
  }
  EXPECT_EQ(cache.Get(0), std::nullopt);
  EXPECT_EQ(cache.Get(1), ImageCheck{});
}

}  // namespace
}  // namespace ballast
