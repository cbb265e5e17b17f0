#include "server/delivery/block_pool.h"

#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(BlockPoolTest, CapacityIsAtLeastTheSizeAndLittleMore) {
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 40);
       bytes = bytes * 5 / 3 + 1) {
    const uint64_t capacity = BlockPool::Capacity(bytes);
    EXPECT_GE(capacity, bytes);
    EXPECT_LE(capacity, bytes + bytes / 8 + 4096);
    EXPECT_EQ(BlockPool::Capacity(capacity), capacity);
  }
}

TEST(BlockPoolTest, ReusesABufferOfTheSameCapacity) {
  BlockPool pool(1 << 20);
  AlignedBuffer first = *pool.Take(100'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.bytes().data()) % 256, 0);
  const uint8_t* where = first.bytes().data();
  pool.GiveBack(std::move(first));
  EXPECT_EQ(pool.idle_bytes(), BlockPool::Capacity(100'000));
  AlignedBuffer again = *pool.Take(100'001);
  EXPECT_EQ(again.bytes().data(), where);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.GiveBack(std::move(again));
}

TEST(BlockPoolTest, IdleMakesRoomForUsed) {
  BlockPool pool(64 << 10);
  AlignedBuffer a = *pool.Take(16 << 10);
  AlignedBuffer b = *pool.Take(32 << 10);
  pool.GiveBack(std::move(a));
  pool.GiveBack(std::move(b));
  EXPECT_EQ(pool.idle_bytes(), 48 << 10);
  // 40 + 48 KiB are too many: the longest idle one, of 16, does not suffice.
  AlignedBuffer c = *pool.Take(40 << 10);
  EXPECT_EQ(pool.idle_bytes(), 0);
  pool.GiveBack(std::move(c));
}

TEST(BlockPoolTest, KeepsNothingBeyondItsBound) {
  BlockPool pool(8 << 10);
  AlignedBuffer a = *pool.Take(32 << 10);
  pool.GiveBack(std::move(a));
  EXPECT_EQ(pool.idle_bytes(), 0);
}

}  // namespace
}  // namespace ballast
