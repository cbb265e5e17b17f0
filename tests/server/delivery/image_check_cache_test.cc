#include "server/delivery/image_check_cache.h"

#include <optional>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ImageCheckCacheTest, ReturnsTheLastCheck) {
  ImageCheckCache cache;
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), std::nullopt);
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{DataFault("cut")});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), SampleCheck{DataFault("cut")});
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7 + 64), std::nullopt);
}

// Positions of two splits are those of different samples.
TEST(ImageCheckCacheTest, KeepsSplitsApart) {
  ImageCheckCache cache;
  cache.Put(v1::SPLIT_VALID, 7, SampleCheck{DataFault("cut")});
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 7), std::nullopt);
  cache.Put(v1::SPLIT_TRAIN, 7, SampleCheck{});
  EXPECT_EQ(cache.Get(v1::SPLIT_VALID, 7), SampleCheck{DataFault("cut")});
}

TEST(ImageCheckCacheTest, RemembersTheLatestPositions) {
  ImageCheckCache cache;
  for (uint64_t position = 0; position <= ImageCheckCache::kMaxCount;
       ++position) {
    cache.Put(v1::SPLIT_TRAIN, position, SampleCheck{});
  }
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 0), std::nullopt);
  EXPECT_EQ(cache.Get(v1::SPLIT_TRAIN, 1), SampleCheck{});
}

}  // namespace
}  // namespace ballast
