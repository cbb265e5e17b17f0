#include "common/aligned_buffer.h"

#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ExtentAllocatorTest, FillsTheLowestHole) {
  ExtentAllocator allocator(100, 200);
  EXPECT_EQ(allocator.Allocate(30), 100u);
  EXPECT_EQ(allocator.Allocate(30), 130u);
  EXPECT_EQ(allocator.Allocate(40), 160u);
  EXPECT_EQ(allocator.Allocate(1), std::nullopt);
  allocator.Free(130);
  EXPECT_EQ(allocator.Allocate(31), std::nullopt);
  EXPECT_EQ(allocator.Allocate(10), 130u);
  EXPECT_EQ(allocator.Allocate(20), 140u);
  EXPECT_EQ(allocator.used(), 100u);
  EXPECT_EQ(allocator.free(), 0u);
}

TEST(ExtentAllocatorTest, NeighbouringHolesMerge) {
  for (const auto& order : std::vector<std::vector<uint64_t>>{
           {0, 10, 20}, {20, 10, 0}, {0, 20, 10}, {10, 0, 20}}) {
    ExtentAllocator allocator(0, 40);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(allocator.Allocate(10));
    for (const uint64_t offset : order) allocator.Free(offset);
    EXPECT_EQ(allocator.Allocate(30), 0u);
  }
}

TEST(ExtentAllocatorTest, AnEmptyRangeHasNoSpace) {
  EXPECT_EQ(ExtentAllocator(5, 5).Allocate(1), std::nullopt);
  EXPECT_EQ(ExtentAllocator(6, 5).Allocate(1), std::nullopt);
  ExtentAllocator allocator(0, 10);
  allocator.Free(3);  // not allocated
  EXPECT_EQ(allocator.free(), 10u);
  EXPECT_EQ(allocator.Allocate(UINT64_MAX), std::nullopt);
}

// Compared with a map of every unit: extents never overlap, and a request fails
// only if no run of free units is long enough.
TEST(ExtentAllocatorTest, AgreesWithAMapOfEveryUnit) {
  constexpr uint64_t kUnits = 200;
  std::mt19937 random(7);
  ExtentAllocator allocator(0, kUnits);
  std::vector<bool> taken(kUnits, false);
  std::map<uint64_t, uint64_t> extents;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0 && !extents.empty()) {
      auto victim = extents.begin();
      std::advance(victim, random() % extents.size());
      allocator.Free(victim->first);
      for (uint64_t u = 0; u < victim->second; ++u) {
        taken[victim->first + u] = false;
      }
      extents.erase(victim);
      continue;
    }
    const uint64_t bytes = 1 + random() % 40;
    std::optional<uint64_t> expected;
    for (uint64_t at = 0; at + bytes <= kUnits && !expected; ++at) {
      bool fits = true;
      for (uint64_t u = 0; u < bytes && fits; ++u) fits = !taken[at + u];
      if (fits) expected = at;
    }
    ASSERT_EQ(allocator.Allocate(bytes), expected);
    if (!expected) continue;
    for (uint64_t u = 0; u < bytes; ++u) taken[*expected + u] = true;
    extents[*expected] = bytes;
  }
}

// The header's figures for holes that are too small to use.
TEST(ExtentAllocatorTest, ExtentsFreedInOrderLeaveLittleUnused) {
  constexpr uint64_t kRange = 1024;
  for (const auto& [largest, least_used] :
       std::map<uint64_t, uint64_t>{{kRange / 8, kRange / 2},
                                    {kRange / 16, kRange * 3 / 4},
                                    {kRange / 64, kRange * 9 / 10}}) {
    std::mt19937 random(11);
    ExtentAllocator allocator(0, kRange);
    std::deque<uint64_t> in_order;
    for (int i = 0; i < 20000; ++i) {
      const uint64_t bytes = largest / 2 + 1 + random() % (largest / 2);
      std::optional<uint64_t> offset = allocator.Allocate(bytes);
      while (!offset) {
        EXPECT_GE(allocator.used(), least_used) << "extents up to " << largest;
        allocator.Free(in_order.front());
        in_order.pop_front();
        offset = allocator.Allocate(bytes);
      }
      in_order.push_back(*offset);
    }
  }
}

}  // namespace
}  // namespace ballast
