// Streams of several splits at the same time: their blocks, their memory and
// what one split does to another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/block/block_layout.h"
#include "proto/block/block_view.h"
#include "server/delivery/block_ledger.h"
#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Sources docs (train), held_out (valid) and quiz (test), of 97 samples each.
v1::Config ThreeSplits() {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  for (const auto& [name, split] : {std::pair("held_out", v1::SPLIT_VALID),
                                    std::pair("quiz", v1::SPLIT_TEST)}) {
    v1::Source* source = config.add_sources();
    *source = config.sources(0);
    source->set_name(name);
    source->set_split(split);
  }
  return config;
}

class LoaderSplitsTest : public LoaderTesting {
 protected:
  LoaderSplitsTest() { Start(ThreeSplits()); }

  BlockingStream Open(v1::Split split, v1::Module module, uint32_t rank,
                      uint64_t steps, uint64_t step = 0) {
    return BlockingStream(loader_.get(), module, rank, step, 0, steps,
                          v1::DELIVERY_UNSPECIFIED, split);
  }
};

TEST_F(LoaderSplitsTest, BuildsTheBlocksOfEverySplitAtOnce) {
  constexpr uint64_t kSteps = 97 / kGlobal;
  Mutex mutex;
  // (source, ordinal) of the samples of each split, once for each occurrence.
  std::vector<std::multiset<std::pair<uint32_t, uint64_t>>> seen(
      v1::Split_ARRAYSIZE);
  std::vector<std::thread> threads;
  for (int number = 0; number < v1::Split_ARRAYSIZE; ++number) {
    const auto split = static_cast<v1::Split>(number);
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      for (const uint32_t rank : {0, 1}) {
        threads.emplace_back([this, &mutex, &seen, split, module, rank] {
          BlockingStream stream = Open(split, module, rank, kSteps);
          for (uint64_t i = 0; i < kSteps * kGlobal / kMicro; ++i) {
            const auto block = stream.Next();
            ASSERT_TRUE(block.ok()) << block.status();
            Check(**block, module, rank, split);
            const BlockView view = *BlockView::Parse((*block)->bytes());
            EXPECT_EQ(view.header().split, static_cast<uint32_t>(split));
            if (module != v1::MODULE_LANGUAGE) continue;
            MutexLock lock(&mutex);
            for (const SampleRecord& sample : view.samples()) {
              seen[split].insert({sample.source, sample.ordinal});
            }
          }
          EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t split = 0; split < seen.size(); ++split) {
    EXPECT_EQ(seen[split].size(), kSteps * kGlobal);
    const std::set<std::pair<uint32_t, uint64_t>> once(seen[split].begin(),
                                                       seen[split].end());
    EXPECT_EQ(once.size(), seen[split].size());
    // The source's number is the split's: sources are in that order here.
    for (const auto& [source, ordinal] : once) EXPECT_EQ(source, split);
  }
  EXPECT_EQ(loader_->memory_in_use(), 0u);
}

// The blocks of equal roles and places of two splits are different blocks.
TEST_F(LoaderSplitsTest, SharesNoBlockBetweenSplits) {
  for (const v1::Split split : {v1::SPLIT_TRAIN, v1::SPLIT_VALID}) {
    BlockingStream stream = Open(split, v1::MODULE_VISION, 0, 1);
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    Check(**block, v1::MODULE_VISION, 0, split);
  }
  EXPECT_EQ(loader_->stats().blocks_reused, 0u);
}

// Validation rests between two evaluations and keeps what it has prefetched.
TEST_F(LoaderSplitsTest, AStreamAtRestLeavesOtherSplitsTheirShares) {
  v1::Config config = ThreeSplits();
  uint64_t block = 0;
  for (const BlockId& id : {BlockId{0, 0}, BlockId{0, 1}, BlockId{1, 0}}) {
    block = std::max(block, BlockLedger::Footprint(
                                GetPlan(v1::MODULE_VISION, 0, id).bytes()));
  }
  // Room for 4 such blocks in the share of each of 4 ranks of 3 splits.
  config.mutable_serve()->set_memory(4 * block * 4 * 3);
  config.mutable_serve()->set_prefetch_steps(50);
  Start(config);
  std::vector<BlockingStream> at_rest;
  for (const v1::Split split : {v1::SPLIT_VALID, v1::SPLIT_TEST}) {
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      for (const uint32_t rank : {0, 1}) {
        at_rest.push_back(Open(split, module, rank, 50));
        ASSERT_TRUE(at_rest.back().Next().ok());
      }
    }
  }
  BlockingStream train = Open(v1::SPLIT_TRAIN, v1::MODULE_VISION, 0, 6);
  // Without its share, a stream gets no block while it holds another.
  std::vector<std::unique_ptr<Block>> held;
  for (int i = 0; i < 3; ++i) {
    auto next = train.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    held.push_back(*std::move(next));
  }
  EXPECT_LE(loader_->memory_in_use(), config.serve().memory());
}

// Language of one split does not wait for vision of another.
TEST_F(LoaderSplitsTest, VisionOfAnotherSplitHoldsNothingBack) {
  v1::Config config = ThreeSplits();
  config.mutable_serve()->set_threads(kGlobal);  // vision's samples block half
  Start(config);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::SPLIT_VALID, v1::MODULE_VISION, 0, 1);
  BlockingStream language = Open(v1::SPLIT_TRAIN, v1::MODULE_LANGUAGE, 0, 1, 5);
  const auto block = language.Next();
  EXPECT_TRUE(block.ok()) << block.status();
  builder_->OpenGate();
}

TEST_F(LoaderSplitsTest, OnlyTrainIsFollowed) {
  loader_->WatchSteps([](uint64_t) {});
  BlockingStream valid = Open(v1::SPLIT_VALID, v1::MODULE_LANGUAGE, 0, 1, 70);
  ASSERT_TRUE(valid.Next().ok());
  EXPECT_EQ(loader_->stats().current_step, std::nullopt);
  BlockingStream train = Open(v1::SPLIT_TRAIN, v1::MODULE_LANGUAGE, 0, 1, 3);
  ASSERT_TRUE(train.Next().ok());
  EXPECT_EQ(loader_->stats().current_step, 3u);
}

TEST_F(LoaderSplitsTest, RanksOfOneSplitMayAskForDirectDelivery) {
  BlockingStream train = Open(v1::SPLIT_TRAIN, v1::MODULE_VISION, 0, 1);
  BlockingStream valid(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 1,
                       v1::DELIVERY_DIRECT, v1::SPLIT_VALID);
  EXPECT_TRUE(valid.Next().ok());
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  role.set_dp_rank(1);
  role.set_delivery(v1::DELIVERY_DIRECT);
  EXPECT_EQ(loader_->OpenStream(role, 0, 0, 1, [] {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LoaderSplitsTest, AnswersTheSchedulesOfEachSplit) {
  for (int number = 0; number < v1::Split_ARRAYSIZE; ++number) {
    const auto split = static_cast<v1::Split>(number);
    Mutex mutex;
    CondVar changed;
    std::optional<v1::StepSchedule> answer;
    loader_->GetSchedule(
        3,
        [&](const auto& schedule) {
          ASSERT_TRUE(schedule.ok()) << schedule.status();
          MutexLock lock(&mutex);
          answer = **schedule;
          changed.NotifyAll();
        },
        split);
    MutexLock lock(&mutex);
    while (!answer.has_value()) changed.Wait(&mutex);
    EXPECT_EQ(answer->SerializeAsString(),
              (*scheduler_->OfSplit(split))->Schedule(3)->SerializeAsString());
  }
}

TEST_F(LoaderSplitsTest, RefusesASplitThatTheJobLacks) {
  Start(JobConfig(2, 2, kGlobal, kMicro));
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  role.set_split(v1::SPLIT_VALID);
  const absl::Status status =
      loader_->OpenStream(role, 0, 0, 1, [] {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("`split: valid` (sources[].split); the job has train"));
}

// Roles that request direct delivery although the configuration has another.

class LoaderDeliveryTest : public LoaderTesting {
 protected:
  static v1::Role RoleOf(v1::Module module, uint32_t rank,
                         v1::Delivery delivery) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    role.set_delivery(delivery);
    return role;
  }

  absl::Status Open(v1::Module module, uint32_t rank, v1::Delivery delivery) {
    return loader_->OpenStream(RoleOf(module, rank, delivery), 0, 0, 0, [] {})
        .status();
  }

  // Returns whether `block` is vision rank 0's under `delivery`.
  bool IsOf(const Block& block, v1::Delivery delivery) {
    const v1::Role role =
        RoleOf(v1::MODULE_VISION, 0, v1::DELIVERY_UNSPECIFIED);
    const auto plan = PlanBlock(
        *scheduler_->Schedule(block.id().step), block.id().micro_batch, role,
        DeliveryRule(delivery), {scheduler_->job().model().patch(), 3});
    return BlockView::Parse(block.bytes())->Matches(*plan).ok();
  }
};

// Alternates the two, so that a block kept from one is not returned for the
// other.
TEST_F(LoaderDeliveryTest, ARoleGetsTheRequestedDelivery) {
  bool differ = false;
  for (int round = 0; round < 2; ++round) {
    BlockingStream natural(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 2);
    BlockingStream direct(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 2,
                          v1::DELIVERY_DIRECT);
    for (int i = 0; i < 4; ++i) {
      const auto as_configured = natural.Next();
      const auto as_asked = direct.Next();
      ASSERT_TRUE(as_configured.ok()) << as_configured.status();
      ASSERT_TRUE(as_asked.ok()) << as_asked.status();
      EXPECT_TRUE(IsOf(**as_configured, v1::DELIVERY_EXCHANGE));
      EXPECT_TRUE(IsOf(**as_asked, v1::DELIVERY_DIRECT));
      differ |= !IsOf(**as_asked, v1::DELIVERY_EXCHANGE);
    }
  }
  EXPECT_TRUE(differ) << "the schedule moves nothing: the test shows nothing";
}

TEST_F(LoaderDeliveryTest, RanksOfAModuleMustRequestTheSameDelivery) {
  auto direct = std::make_unique<BlockingStream>(
      loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0, v1::DELIVERY_DIRECT);
  const absl::Status refused =
      Open(v1::MODULE_VISION, 1, v1::DELIVERY_UNSPECIFIED);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("vision rank 0"));
  EXPECT_THAT(refused.message(), HasSubstr("rank 1 exchanges"));
  EXPECT_TRUE(Open(v1::MODULE_VISION, 1, v1::DELIVERY_DIRECT).ok());
  EXPECT_TRUE(Open(v1::MODULE_LANGUAGE, 1, v1::DELIVERY_UNSPECIFIED).ok());

  direct.reset();
  BlockingStream natural(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 0);
  EXPECT_EQ(Open(v1::MODULE_VISION, 0, v1::DELIVERY_DIRECT).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(LoaderDeliveryTest, RequestingTheConfiguredDeliveryHasNoEffect) {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  config.mutable_balance()->set_delivery(v1::DELIVERY_DIRECT);
  Start(config);
  BlockingStream silent(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  EXPECT_TRUE(Open(v1::MODULE_VISION, 1, v1::DELIVERY_DIRECT).ok());
}

TEST_F(LoaderDeliveryTest, RefusesAnyOtherDelivery) {
  const absl::Status refused =
      Open(v1::MODULE_VISION, 0, v1::DELIVERY_EXCHANGE);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("DELIVERY_EXCHANGE"));
}

// Blocks that several streams take, one after the other or concurrently, and
// their places in the arena.

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
