#include "server/data/parquet/parquet_file.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace ballast {
namespace {

class FakePart final : public ParquetPart {
 public:
  explicit FakePart(uint64_t bytes) : bytes_(bytes) {}
  uint64_t bytes() const override { return bytes_; }

 private:
  const uint64_t bytes_;
};

ParquetPartKey GetKey(uint64_t offset) { return {nullptr, 0, offset}; }

RowGroupCache::Load Make(uint64_t bytes) {
  return [bytes] { return std::make_shared<FakePart>(bytes); };
}

TEST(RowGroupCacheTest, ForgetsTheLeastRecentlyUsedBeyondItsBytes) {
  RowGroupCache cache(100);
  ASSERT_TRUE(cache.Get(GetKey(1), Make(40)).ok());
  ASSERT_TRUE(cache.Get(GetKey(2), Make(40)).ok());
  EXPECT_NE(cache.Find(GetKey(1)), nullptr);
  ASSERT_TRUE(cache.Get(GetKey(3), Make(40)).ok());
  EXPECT_EQ(cache.Find(GetKey(2)), nullptr);
  EXPECT_NE(cache.Find(GetKey(1)), nullptr);
  EXPECT_EQ(cache.bytes(), 80u);
  EXPECT_EQ(cache.loads(), 3u);
  ASSERT_TRUE(cache.Get(GetKey(3), Make(40)).ok());
  EXPECT_EQ(cache.loads(), 3u);
  cache.SetCapacity(50);
  EXPECT_EQ(cache.bytes(), 40u);
  EXPECT_NE(cache.Find(GetKey(3)), nullptr);
  // One part is kept whatever it takes.
  ASSERT_TRUE(cache.Get(GetKey(4), Make(1000)).ok());
  EXPECT_EQ(cache.bytes(), 1000u);
  EXPECT_NE(cache.Find(GetKey(4)), nullptr);
  EXPECT_EQ(cache.Find(GetKey(3)), nullptr);
}

TEST(RowGroupCacheTest, DropsPartsAndSources) {
  RowGroupCache cache(100);
  int a = 0;
  int b = 0;
  ASSERT_TRUE(cache.Get({&a, 0, 1}, Make(10)).ok());
  ASSERT_TRUE(cache.Get({&b, 0, 1}, Make(10)).ok());
  ASSERT_TRUE(cache.Get({&a, 1, 1}, Make(10)).ok());
  cache.Drop({&b, 0, 7});
  EXPECT_EQ(cache.bytes(), 30u);
  cache.Drop({&a, 0, 1});
  EXPECT_EQ(cache.Find({&a, 0, 1}), nullptr);
  cache.DropSource(&a);
  EXPECT_EQ(cache.Find({&a, 1, 1}), nullptr);
  EXPECT_NE(cache.Find({&b, 0, 1}), nullptr);
  EXPECT_EQ(cache.bytes(), 10u);
}

TEST(RowGroupCacheTest, FailedLoadsLeaveNothing) {
  RowGroupCache cache(100);
  const auto failed =
      cache.Get(GetKey(1), []() -> absl::StatusOr<RowGroupCache::Ptr> {
        return absl::UnavailableError("disk");
      });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cache.Find(GetKey(1)), nullptr);
  EXPECT_TRUE(cache.Get(GetKey(1), Make(1)).ok());
}

TEST(RowGroupCacheTest, OneThreadLoadsWhileOthersWait) {
  RowGroupCache cache(100);
  std::atomic<int> loads = 0;
  std::atomic<int> asking = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      ++asking;
      const auto part =
          cache.Get(GetKey(1), [&, i]() -> absl::StatusOr<RowGroupCache::Ptr> {
            // The first load fails once all threads are on their way.
            while (asking < 6) std::this_thread::yield();
            if (loads++ == 0) return absl::UnavailableError("first");
            return std::make_shared<FakePart>(i);
          });
      if (!part.ok()) {
        EXPECT_EQ(part.status().message(), "first");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The first, and one for all that waited.
  EXPECT_EQ(loads, 2);
}

}  // namespace
}  // namespace ballast
