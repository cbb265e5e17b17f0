#include "server/image/scratch_arena.h"

#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ScratchArenaTest, PiecesAreAlignedAndApart) {
  ScratchArena arena(1 << 20, 1 << 20);
  auto* a = arena.AllocateArray<uint8_t>(1);
  auto* b = arena.AllocateArray<uint8_t>(100);
  auto* c = arena.AllocateArray<uint64_t>(20000);
  for (const void* piece :
       {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)}) {
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
  }
  std::memset(a, 1, 1);
  std::memset(b, 2, 100);
  std::memset(c, 3, 160000);
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ(b[99], 2);
}

TEST(ScratchArenaTest, RefusesMoreThanTheLimit) {
  ScratchArena arena(1000, 1 << 20);
  EXPECT_NE(arena.Allocate(600), nullptr);
  EXPECT_EQ(arena.Allocate(600), nullptr);
  EXPECT_EQ(arena.Allocate(UINT64_MAX), nullptr);
  EXPECT_EQ(arena.AllocateArray<uint64_t>(UINT64_MAX / 2), nullptr);
  arena.Reset();
  EXPECT_NE(arena.Allocate(1000), nullptr);
  EXPECT_EQ(arena.Allocate(1), nullptr);
}

TEST(ScratchArenaTest, AsksTheSystemOnlyUntilItHasSeenTheMost) {
  ScratchArena arena(1 << 30, 1 << 30);
  const auto fill = [&] {
    arena.Reset();
    for (int i = 0; i < 50; ++i) ASSERT_NE(arena.Allocate(100000), nullptr);
  };
  fill();
  fill();
  const uint64_t allocations = arena.system_allocations();
  for (int round = 0; round < 5; ++round) fill();
  EXPECT_EQ(arena.system_allocations(), allocations);
  EXPECT_GE(arena.used(), 5000000u);
}

TEST(ScratchArenaTest, KeepsAtMostTheGivenMemory) {
  ScratchArena arena(1 << 30, 100000);
  ASSERT_NE(arena.Allocate(1 << 20), nullptr);
  EXPECT_GE(arena.held(), 1u << 20);
  arena.Reset();
  EXPECT_EQ(arena.held(), 0u);
  ASSERT_NE(arena.Allocate(10000), nullptr);
  arena.Reset();
  EXPECT_GT(arena.held(), 0u);
  EXPECT_LE(arena.held(), 100000u);
}

}  // namespace
}  // namespace ballast
