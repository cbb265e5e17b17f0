#include "client/buffer_pool.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr uint64_t kPoolMiB = uint64_t{1} << 20;

BufferPool::Buffer Take(BufferPool* pool, uint64_t bytes) {
  absl::StatusOr<BufferPool::Buffer> buffer = pool->Take(bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(BufferPoolTest, BuffersLieInOneRegion) {
  BufferPool pool(4 * kPoolMiB);
  const auto first = Take(&pool, 1);
  const auto region = pool.GetRegion(first);
  ASSERT_NE(region, nullptr);
  EXPECT_FALSE(region->read_only());
  EXPECT_EQ(region->bytes().size(), 4 * kPoolMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->bytes().data()) % 4096, 0u);
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{4097}, kPoolMiB}) {
    const auto buffer = Take(&pool, bytes);
    EXPECT_EQ(buffer.bytes.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes.data()) % 256, 0u);
    EXPECT_GE(buffer.bytes.data(), region->bytes().begin());
    EXPECT_LE(buffer.bytes.end(), region->bytes().end());
    EXPECT_EQ(pool.GetRegion(buffer), region);
    std::memset(buffer.bytes.data(), 1, bytes);
  }
}

TEST(BufferPoolTest, PlacesAreReused) {
  BufferPool pool(kPoolMiB);
  auto first = Take(&pool, kPoolMiB);
  const uint8_t* const data = first.bytes.data();
  pool.Return(std::move(first));
  EXPECT_EQ(Take(&pool, 3 * kPoolMiB / 4).bytes.data(), data);
}

TEST(BufferPoolTest, BuffersThatDoNotFitGetTheirOwnMemory) {
  BufferPool pool(kPoolMiB);
  auto all = Take(&pool, kPoolMiB);
  for (const uint64_t bytes : {uint64_t{1}, 2 * kPoolMiB}) {
    auto alone = Take(&pool, bytes);
    EXPECT_EQ(pool.GetRegion(alone), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(alone.bytes.data()) % 256, 0u);
    std::memset(alone.bytes.data(), 1, bytes);
    pool.Return(std::move(alone));
  }
  pool.Return(std::move(all));
  EXPECT_NE(pool.GetRegion(Take(&pool, 1)), nullptr);
}

TEST(BufferPoolTest, TheRegionMayOutliveThePool) {
  auto pool = std::make_unique<BufferPool>(kPoolMiB);
  auto buffer = Take(pool.get(), 100);
  const auto region = pool->GetRegion(buffer);
  buffer.bytes[0] = 7;
  pool->Return(std::move(buffer));
  pool.reset();
  EXPECT_EQ(region->bytes()[0], 7);
}

TEST(BufferPoolTest, WithoutARegionAllBuffersGetTheirOwnMemory) {
  BufferPool pool(0);
  EXPECT_EQ(pool.GetRegion(Take(&pool, 10)), nullptr);
  EXPECT_EQ(Take(&pool, 0).bytes.size(), 0u);
}

TEST(BufferPoolTest, RefusesAbsurdSizes) {
  BufferPool pool(UINT64_MAX);
  EXPECT_EQ(pool.Take(UINT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(BufferPoolsTest, TheNextPoolReusesTheRegionOfTheReleasedOne) {
  BufferPools pools;
  auto pool = pools.Take(kPoolMiB);
  auto buffer = Take(pool.get(), 1);
  const uint8_t* const data = buffer.bytes.data();
  std::memset(buffer.bytes.data(), 1, 1);

  // One pool in use and one of another size: two pools.
  const auto beside = pools.Take(kPoolMiB);
  EXPECT_NE(Take(beside.get(), 1).bytes.data(), data);
  pool->Return(std::move(buffer));
  pool.reset();
  EXPECT_EQ(pools.Take(2 * kPoolMiB)->region_bytes(), 2 * kPoolMiB);

  EXPECT_EQ(Take(pools.Take(kPoolMiB).get(), 1).bytes.data(), data);
}

TEST(BufferPoolsTest, KeepsTheLatest) {
  BufferPools pools;
  std::vector<std::shared_ptr<BufferPool>> used;
  std::vector<std::weak_ptr<const MemoryRegion>> regions;
  for (size_t i = 0; i < BufferPools::kMaxIdle + 1; ++i) {
    used.push_back(pools.Take(kPoolMiB));
    auto buffer = Take(used.back().get(), 1);
    regions.push_back(used.back()->GetRegion(buffer));
    used.back()->Return(std::move(buffer));
  }
  for (auto& pool : used) pool.reset();
  EXPECT_TRUE(regions[0].expired());
  for (size_t i = 1; i < regions.size(); ++i) {
    EXPECT_FALSE(regions[i].expired()) << i;
  }
}

TEST(BufferPoolsTest, PoolsMayOutliveThem) {
  auto pools = std::make_unique<BufferPools>();
  const auto pool = pools->Take(kPoolMiB);
  pools.reset();
  std::memset(Take(pool.get(), kPoolMiB).bytes.data(), 1, kPoolMiB);
}

}  // namespace
}  // namespace ballast
