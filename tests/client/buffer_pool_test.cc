#include "client/buffer_pool.h"

#include <utility>

#include <gtest/gtest.h>

namespace ballast {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

AlignedBuffer Take(BufferPool* pool, uint64_t bytes) {
  absl::StatusOr<AlignedBuffer> buffer = pool->Take(bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(BufferPoolTest, BuffersAreAlignedAndLittleLargerThanAsked) {
  BufferPool pool(kMiB);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{4097},
                               kMiB, kMiB + 1, 5 * kMiB}) {
    const AlignedBuffer buffer = Take(&pool, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes().data()) % 256, 0u);
    EXPECT_GE(buffer.size(), bytes);
    EXPECT_LE(buffer.size(), std::max(uint64_t{4096}, bytes + bytes / 8 + 1));
  }
}

TEST(BufferPoolTest, UsesBuffersAgain) {
  BufferPool pool(16 * kMiB);
  AlignedBuffer first = Take(&pool, kMiB);
  const uint8_t* const data = first.bytes().data();
  pool.Return(std::move(first));
  AlignedBuffer second = Take(&pool, kMiB - 1000);
  EXPECT_EQ(second.bytes().data(), data);
  // A buffer far too large is not spent on a small block.
  pool.Return(std::move(second));
  EXPECT_LT(Take(&pool, 1000).size(), kMiB);
}

TEST(BufferPoolTest, KeepsNoMoreThanItsBound) {
  BufferPool pool(3 * kMiB);
  AlignedBuffer a = Take(&pool, 2 * kMiB);
  AlignedBuffer b = Take(&pool, 2 * kMiB);
  EXPECT_EQ(pool.bytes(), 4 * kMiB);
  pool.Return(std::move(a));  // together with b too much
  EXPECT_EQ(pool.bytes(), 2 * kMiB);
  pool.Return(std::move(b));  // alone within the bound
  EXPECT_EQ(pool.bytes(), 2 * kMiB);
  const AlignedBuffer c = Take(&pool, kMiB / 2);
  EXPECT_EQ(pool.bytes(), 5 * kMiB / 2);
  // The free one makes way for one that it does not fit.
  const AlignedBuffer d = Take(&pool, 5 * kMiB / 2);
  EXPECT_EQ(pool.bytes(), 3 * kMiB);
}

TEST(BufferPoolTest, RefusesWhatNoMachineHas) {
  BufferPool pool(kMiB);
  EXPECT_EQ(pool.Take(UINT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ballast
