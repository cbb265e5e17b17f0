// Blocks that several streams take, one after the other or concurrently, and
// their places in the arena.

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/block/block_layout.h"
#include "server/delivery/block_ledger.h"
#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

using LoaderSharingTest = LoaderTesting;

// Number of samples in the role's blocks of `steps` steps.
constexpr uint64_t SamplesOf(uint64_t steps) { return steps * kGlobal / 2; }

// Tensor- and context-parallel ranks of a data-parallel rank, at the same time.
TEST_F(LoaderSharingTest, BuildsABlockOnceForAllPeers) {
  std::vector<std::thread> threads;
  for (int peer = 0; peer < 8; ++peer) {
    threads.emplace_back([this] {
      BlockingStream stream(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 3);
      for (int i = 0; i < 6; ++i) {
        const auto block = stream.Next();
        ASSERT_TRUE(block.ok()) << block.status();
        Check(**block, v1::MODULE_VISION, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(builder_->builds(), SamplesOf(3));
  EXPECT_EQ(loader_->memory_in_use(), 0);
}

// One after the other: the last peer opens its stream after the first has
// closed its own.
TEST_F(LoaderSharingTest, DoesNotRebuildForAPeerFarBehind) {
  for (int peer = 0; peer < 3; ++peer) {
    BlockingStream stream(loader_.get(), v1::MODULE_LANGUAGE, 0, 0, 0, 4);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(stream.Next().ok());
  }
  EXPECT_EQ(builder_->builds(), SamplesOf(4));
}

// The rank is cut off anywhere and reconnects for the block after the last one
// it took. Blocks begun for it meanwhile are finished and reused.
TEST_F(LoaderSharingTest, DoesNotRebuildForAReconnectingRank) {
  for (uint64_t i = 0; i < 8; ++i) {
    BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, i / 2, i % 2, 0);
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    Check(**block, v1::MODULE_VISION, 0);
    if (i % 3 == 0) {
      builder_->ShutGate();
      stream->Close();
      builder_->OpenGate();
    }
  }
  EXPECT_EQ(builder_->builds(), builder_->begun().size());
}

// Blocks are kept until their place is needed: memory stays bounded, and they
// are built again.
TEST_F(LoaderSharingTest, EvictsKeptBlocks) {
  uint64_t block_bytes = 0;
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t m = 0; m < 2; ++m) {
      block_bytes = std::max(
          block_bytes, BlockLedger::Footprint(
                           GetPlan(v1::MODULE_VISION, 0, {step, m}).bytes()));
    }
  }
  config_.mutable_serve()->set_memory(4 * block_bytes);
  Start(config_);
  for (int round = 0; round < 2; ++round) {
    BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 10);
    for (int i = 0; i < 20; ++i) {
      const auto block = stream.Next();
      ASSERT_TRUE(block.ok()) << block.status();
      Check(**block, v1::MODULE_VISION, 0);
    }
  }
  EXPECT_GT(builder_->builds(), SamplesOf(10));
}

TEST_F(LoaderSharingTest, AFailedBlockFailsForEveryPeerAndIsRebuilt) {
  builder_->FailAt(kGlobal);
  builder_->ShutGate();
  BlockingStream first(loader_.get(), v1::MODULE_VISION, 0, 1, 0, 0);
  BlockingStream second(loader_.get(), v1::MODULE_VISION, 0, 1, 0, 0);
  builder_->AwaitWorking(2);
  builder_->OpenGate();
  EXPECT_EQ(GetCode(first.Next()), absl::StatusCode::kDataLoss);
  EXPECT_EQ(GetCode(second.Next()), absl::StatusCode::kDataLoss);
  const uint64_t before = builder_->builds();
  BlockingStream third(loader_.get(), v1::MODULE_VISION, 0, 1, 0, 0);
  EXPECT_EQ(GetCode(third.Next()), absl::StatusCode::kDataLoss);
  EXPECT_GT(builder_->builds(), before);
}

// Checks stamps, and a block that is still being read when its place is reused.
TEST_F(LoaderSharingTest, StampsTellWhetherABlockIsIntact) {
  config_.mutable_serve()->set_arena(::testing::TempDir());
  config_.mutable_serve()->set_prefetch_steps(0);
  config_.mutable_serve()->set_memory(uint64_t{32} << 20);
  Start(config_, 1);
  ASSERT_NE(loader_->arena(), nullptr);
  EXPECT_EQ(loader_->arena()->bytes, config_.serve().memory());
  const uint8_t* bytes = nullptr;
  uint64_t generation = 0;
  const auto still_there = [&] {
    return StampHolds(
        reinterpret_cast<const ArenaStamp*>(bytes - kArenaStampBytes),
        generation);
  };
  {
    BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 1);
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    ASSERT_TRUE((*block)->place().has_value());
    EXPECT_EQ((*block)->place()->offset % 256, 0u);
    bytes = (*block)->bytes().data();
    generation = (*block)->place()->generation;
    EXPECT_TRUE(still_there());
  }
  EXPECT_TRUE(still_there());  // idle
  // All of the memory is used for other blocks.
  std::vector<std::unique_ptr<Block>> held;
  BlockingStream other(loader_.get(), v1::MODULE_VISION, 0, 1, 0, 0);
  for (int i = 0; still_there() && i < 1000; ++i) {
    auto block = other.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    if ((*block)->place().has_value()) (*block)->Lend();
    held.push_back(*std::move(block));
  }
  EXPECT_FALSE(still_there());
  EXPECT_LE(loader_->memory_in_use(), config_.serve().memory());
}

TEST_F(LoaderSharingTest, RefusesAnArenaThatCannotBeCreated) {
  config_.mutable_serve()->set_arena(testing::TempDir() + "/missing");
  const auto loader = Loader::Create(config_, 4, scheduler_.get(),
                                     std::make_unique<FakeSampleBuilder>());
  EXPECT_EQ(loader.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ballast
