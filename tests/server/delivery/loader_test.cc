#include "server/delivery/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "proto/block/block_view.h"
#include "server/delivery/block_stream.h"
#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

using LoaderTest = LoaderTesting;

TEST_F(LoaderTest, DeliversTheRolesBlocksInOrder) {
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_HYBRID,
        v1::DELIVERY_OFF}) {
    Start(JobConfig(2, 2, kGlobal, kMicro, delivery));
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      BlockingStream stream(loader_.get(), module, 1, 3, 1, 3);
      for (const auto& [step, micro_batch] :
           std::vector<std::pair<uint64_t, uint32_t>>{
               {3, 1}, {4, 0}, {4, 1}, {5, 0}, {5, 1}}) {
        const auto block = stream.Next();
        ASSERT_TRUE(block.ok()) << block.status();
        EXPECT_EQ((*block)->id().step, step);
        EXPECT_EQ((*block)->id().micro_batch, micro_batch);
        Check(**block, module, 1);
      }
      EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
      EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
    }
  }
}

// Streams of three servers' shares have all blocks between them, once.
TEST_F(LoaderTest, SharesOfAStreamHaveAllBlocksOnce) {
  constexpr uint64_t kSteps = 20;
  const std::vector<CircleRange> circle =
      DivideCircle(std::vector<SpreadServer>(3));
  std::set<std::pair<uint64_t, uint32_t>> seen;
  for (size_t server = 0; server < 3; ++server) {
    BlockShare share;
    share.stride = kGlobal / kMicro;
    for (const CircleRange& range : circle) {
      if (range.server != server) continue;
      share.parts.push_back({range.first, range.last, 0, 0});
    }
    BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, kSteps,
                          v1::DELIVERY_UNSPECIFIED, v1::SPLIT_TRAIN, share);
    while (true) {
      const auto block = stream.Next();
      if (!block.ok()) {
        EXPECT_EQ(GetCode(block), absl::StatusCode::kOutOfRange);
        break;
      }
      EXPECT_TRUE(share.Owns((*block)->id().step, (*block)->id().micro_batch));
      EXPECT_TRUE(seen.insert({(*block)->id().step, (*block)->id().micro_batch})
                      .second);
      Check(**block, v1::MODULE_VISION, 0);
    }
  }
  EXPECT_EQ(seen.size(), kSteps * kGlobal / kMicro);
}

TEST_F(LoaderTest, AShareWithoutABlockEnds) {
  BlockShare share;
  share.parts = {{0, UINT64_MAX, 1000, 0}};
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 5,
                        v1::DELIVERY_UNSPECIFIED, v1::SPLIT_TRAIN, share);
  EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
}

TEST_F(LoaderTest, ReadsOnlySamplesOfOpenStreams) {
  BlockingStream stream(loader_.get(), v1::MODULE_LANGUAGE, 1, 0, 0, 1);
  std::set<uint64_t> wanted;
  while (true) {
    const auto block = stream.Next();
    if (!block.ok()) break;
    const auto view = BlockView::Parse((*block)->bytes());
    for (const SampleRecord& sample : view->samples()) {
      wanted.insert(sample.position);
    }
  }
  EXPECT_EQ(wanted.size(), kGlobal / 2);
  EXPECT_EQ(builder_->begun(), wanted);
}

TEST_F(LoaderTest, ServesManyStreamsConcurrently) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      const v1::Module module =
          t % 4 < 2 ? v1::MODULE_VISION : v1::MODULE_LANGUAGE;
      BlockingStream stream(loader_.get(), module, t % 2, 0, 0, 2);
      for (int i = 0; i < 4; ++i) {
        const auto block = stream.Next();
        ASSERT_TRUE(block.ok()) << block.status();
        Check(**block, module, t % 2);
      }
      EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loader_->memory_in_use(), 0);
  EXPECT_EQ(loader_->open_streams(), 0);
}

TEST_F(LoaderTest, DeliversBlocksBeforeAnError) {
  // Rank 0 needs this sample in the second micro-batch of step 1.
  builder_->FailAt(kGlobal + kMicro);
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  for (int i = 0; i < 3; ++i) {
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    Check(**block, v1::MODULE_VISION, 0);
  }
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = stream.Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(std::string(status.message()),
              "step 1 micro-batch 1 position 24: told to fail");
  }
}

TEST_F(LoaderTest, AStepThatTheScheduleRefusesIsAnErrorInOrder) {
  const uint64_t last = UINT64_MAX / kGlobal - 1;
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, last, 0, 0);
  EXPECT_TRUE(stream.Next().ok());
  EXPECT_TRUE(stream.Next().ok());
  const absl::Status status = stream.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("overflow uint64"));
}

TEST_F(LoaderTest, PrefetchesExactlyTheConfiguredSteps) {
  config_.mutable_serve()->set_prefetch_steps(1);
  Start(config_);
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  ASSERT_TRUE(stream.Next().ok());  // the next one is of step 0 too
  for (const uint64_t position : builder_->begun()) {
    EXPECT_LT(position, 2 * kGlobal);
  }
}

TEST_F(LoaderTest, MemoryStaysWithinTheBound) {
  uint64_t largest = 0;
  for (uint64_t step = 0; step < 3; ++step) {
    for (uint32_t m = 0; m < 2; ++m) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        largest = std::max(
            largest, BlockLedger::Footprint(
                         GetPlan(v1::MODULE_VISION, rank, {step, m}).bytes()));
      }
    }
  }
  config_.mutable_serve()->set_memory(largest * 6);
  config_.mutable_serve()->set_prefetch_steps(100);
  Start(config_);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([this, rank, largest] {
      BlockingStream stream(loader_.get(), v1::MODULE_VISION, rank, 0, 0, 3);
      while (true) {
        const auto block = stream.Next();
        if (!block.ok()) break;
        EXPECT_LE(loader_->memory_in_use(), largest * 6);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loader_->memory_in_use(), 0);
}

// A role that is alone has all memory. When others come, it gives back what it
// has built for later, and makes it again in time.
TEST_F(LoaderTest, MemoryIsDividedAmongTheRolesThatAreThere) {
  uint64_t largest = 0;
  for (uint64_t step = 0; step < 8; ++step) {
    for (uint32_t m = 0; m < 2; ++m) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        largest = std::max(
            largest, BlockLedger::Footprint(
                         GetPlan(v1::MODULE_VISION, rank, {step, m}).bytes()));
      }
    }
  }
  config_.mutable_serve()->set_memory(largest * 8);
  config_.mutable_serve()->set_prefetch_steps(100);
  Start(config_, 1000);
  BlockingStream early(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  // Memory ends what it begins ahead, beyond 1/1000 of it.
  while (loader_->stats().streams_short_of_memory == 0) {
    std::this_thread::yield();
  }
  EXPECT_GT(loader_->memory_in_use(), largest * 6);
  BlockingStream late(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 0);
  // Without a share, it would get no block while it holds another.
  std::vector<std::unique_ptr<Block>> held;
  for (int i = 0; i < 3; ++i) {
    auto next = late.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    Check(**next, v1::MODULE_VISION, 1);
    held.push_back(*std::move(next));
  }
  for (uint64_t i = 0; i < 16; ++i) {
    const auto next = early.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->id(), (BlockId{i / 2, static_cast<uint32_t>(i % 2)}));
    Check(**next, v1::MODULE_VISION, 0);
    EXPECT_LE(loader_->memory_in_use(), config_.serve().memory());
  }
}

TEST_F(LoaderTest, AStreamMakesProgressWithAlmostNoMemory) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 2);
  for (int i = 0; i < 4; ++i) {
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ(loader_->memory_in_use(),
              BlockLedger::Footprint((*block)->bytes().size()));
  }
}

// A held block keeps its memory, so the next one waits until it is released.
TEST_F(LoaderTest, AHeldBlockDelaysOnlyItsOwnStream) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream held(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  auto block = held.Next();
  ASSERT_TRUE(block.ok());
  EXPECT_FALSE(held->TryNext().has_value());
  BlockingStream other(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 3);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(other.Next().ok());
  EXPECT_FALSE(held->TryNext().has_value());
  block->reset();
  EXPECT_TRUE(held.Next().ok());
}

TEST_F(LoaderTest, CloseFreesEverythingEvenWithWorkInFlight) {
  config_.mutable_serve()->set_threads(1);
  Start(config_);
  builder_->ShutGate();
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  builder_->AwaitWorking(1);  // the only worker is inside a sample
  EXPECT_GT(loader_->memory_in_use(), 0);
  stream->Close();
  EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kCancelled);
  builder_->OpenGate();
  // The same worker builds this, so it has released the closed stream's block.
  {
    BlockingStream other(loader_.get(), v1::MODULE_LANGUAGE, 0, 0, 0, 1);
    EXPECT_TRUE(other.Next().ok());
    EXPECT_TRUE(other.Next().ok());
  }
  EXPECT_EQ(loader_->memory_in_use(), 0);
  // For the closed stream, at most the block that had begun was read.
  EXPECT_LE(builder_->begun().size(), kMicro / 2 + kGlobal / 2);
}

TEST_F(LoaderTest, CloseAtAnyMoment) {
  for (int taken = 0; taken < 6; ++taken) {
    const uint32_t rank = taken % 2;
    std::vector<std::unique_ptr<Block>> kept;
    BlockingStream stream(loader_.get(), v1::MODULE_VISION, rank, 0, 0, 0);
    for (int i = 0; i < taken; ++i) kept.push_back(*stream.Next());
    // Another thread takes blocks meanwhile. It does not wait, since nothing
    // wakes a consumer whose stream is closed.
    std::thread taker([&stream] {
      while (true) {
        const auto next = stream->TryNext();
        if (next.has_value() && !next->ok()) break;
      }
    });
    stream->Close();
    taker.join();
    EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kCancelled);
    // Blocks that were taken outlive their stream.
    for (const auto& block : kept) Check(*block, v1::MODULE_VISION, rank);
  }
  EXPECT_EQ(loader_->open_streams(), 0);
}

TEST_F(LoaderTest, StreamsAndBlocksMayOutliveTheLoader) {
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  auto block = stream.Next();
  ASSERT_TRUE(block.ok());
  loader_.reset();
  EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kUnavailable);
  Check(**block, v1::MODULE_VISION, 0);
}

TEST_F(LoaderTest, DrainEndsOpenStreamsAndRefusesNewOnes) {
  BlockingStream idle(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 0);
  ASSERT_TRUE(idle.Next().ok());
  builder_->ShutGate();
  BlockingStream waiting(loader_.get(), v1::MODULE_VISION, 1, 50, 0, 0);
  absl::Status seen;
  std::thread reader([&] { seen = waiting.Next().status(); });
  builder_->AwaitWorking(2);
  EXPECT_TRUE(idle->status().ok());
  loader_->Drain();
  EXPECT_EQ(idle->status().code(), absl::StatusCode::kUnavailable);
  reader.join();
  builder_->OpenGate();
  EXPECT_EQ(seen.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetCode(idle.Next()), absl::StatusCode::kUnavailable);
  v1::Role role;
  role.set_module(v1::MODULE_VISION);
  EXPECT_EQ(loader_->OpenStream(role, 0, 0, 0, [] {}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(LoaderTest, RefusesRolesThatTheJobLacks) {
  const auto open = [this](v1::Module module, uint32_t rank, uint32_t m) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    return loader_->OpenStream(role, 0, m, 0, [] {}).status();
  };
  EXPECT_EQ(open(v1::MODULE_UNSPECIFIED, 0, 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(open(v1::MODULE_VISION, 2, 0).message()),
              HasSubstr("2 data-parallel ranks; rank 2"));
  EXPECT_TRUE(open(v1::MODULE_LANGUAGE, 1, 1).ok());
}

TEST_F(LoaderTest, AFirstStepWithoutTheMicroBatchIsAnError) {
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 0, 7, 2, 0);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = stream.Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()),
              "step 7 has 2 micro-batches; number 2 was asked for");
  }
}

// Steps of 3, 1, 2 and 3 micro-batches.
TEST_F(LoaderTest, EveryStepHasItsOwnNumberOfMicroBatches) {
  StartSynthetic({.dynamic = true});
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    BlockingStream stream(loader_.get(), module, 1, 2, 1, 4);
    for (const auto& [step, micro_batch] :
         std::vector<std::pair<uint64_t, uint32_t>>{
             {2, 1}, {2, 2}, {3, 0}, {4, 0}, {4, 1}, {5, 0}, {5, 1}, {5, 2}}) {
      const auto block = stream.Next();
      ASSERT_TRUE(block.ok()) << block.status();
      EXPECT_EQ((*block)->id().step, step);
      EXPECT_EQ((*block)->id().micro_batch, micro_batch);
      Check(**block, module, 1);
    }
    EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
  }
}

// Under `direct`, rank 1 pulls the samples that it owns, which are none.
TEST_F(LoaderTest, BlocksWithoutSamplesAreDelivered) {
  StartSynthetic({.samples_per_group = 1,
                  .delivery = v1::DELIVERY_DIRECT,
                  .uneven = true});
  BlockingStream stream(loader_.get(), v1::MODULE_VISION, 1, 0, 0, 2);
  for (int i = 0; i < 4; ++i) {
    const auto block = stream.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ((*block)->bytes().size(), 256);
    Check(**block, v1::MODULE_VISION, 1);
  }
  EXPECT_EQ(GetCode(stream.Next()), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(builder_->begun().empty());
  EXPECT_EQ(loader_->memory_in_use(), 0);
}

v1::Role RoleOf(v1::Module module, uint32_t rank) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  return role;
}

// A rank that opens one stream after the other and reads none of them, whether
// its trainer is in a loop or means harm. It locks nobody out, itself included,
// and its stream in use goes on.
TEST_F(LoaderTest, IdleStreamsOfOneRankGiveWay) {
  BlockingStream used(loader_.get(), v1::MODULE_LANGUAGE, 0, 0, 0, 0);
  std::vector<std::unique_ptr<BlockStream>> idle;
  for (uint64_t i = 0; i < 64; ++i) {
    auto stream =
        loader_->OpenStream(RoleOf(v1::MODULE_LANGUAGE, 0), 0, 0, 0, [] {});
    ASSERT_TRUE(stream.ok()) << stream.status();
    idle.push_back(*std::move(stream));
    const auto block = used.Next();
    ASSERT_TRUE(block.ok()) << block.status();
    Check(**block, v1::MODULE_LANGUAGE, 0);
  }
  // Seven and the one in use; the oldest have given way.
  for (size_t i = 0; i < idle.size(); ++i) {
    EXPECT_EQ(idle[i]->status().code(), i < idle.size() - 7
                                            ? absl::StatusCode::kAborted
                                            : absl::StatusCode::kOk)
        << i;
  }
  EXPECT_THAT(std::string(idle[0]->status().message()),
              HasSubstr("language rank 0, whose client took no block"));
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    BlockingStream other(loader_.get(), module, 1, 0, 0, 1);
    EXPECT_TRUE(other.Next().ok());
  }
}

// Streams whose clients wait for a block are in use: none of them gives way.
TEST_F(LoaderTest, RefusesAStreamWhereAllOfTheRoleAreInUse) {
  builder_->ShutGate();
  std::vector<std::unique_ptr<BlockStream>> streams;
  const v1::Role role = RoleOf(v1::MODULE_LANGUAGE, 1);
  for (int i = 0; i < 8; ++i) {
    streams.push_back(*loader_->OpenStream(role, i, 0, 1, [] {}));
    EXPECT_FALSE(streams.back()->TryNext().has_value());
  }
  const absl::Status refused =
      loader_->OpenStream(role, 0, 0, 1, [] {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("8 streams of language rank 1 are open"));
  EXPECT_TRUE(
      loader_->OpenStream(RoleOf(v1::MODULE_LANGUAGE, 0), 0, 0, 1, [] {}).ok());
  streams.pop_back();
  EXPECT_TRUE(loader_->OpenStream(role, 0, 0, 1, [] {}).ok());
  builder_->OpenGate();
}

// The bound of all streams: of eight ranks with eight streams each, one gives
// way to each further rank.
TEST_F(LoaderTest, TheRankWithTheMostStreamsGivesWay) {
  Start(JobConfig(16, 16, 32, 16));
  std::vector<std::unique_ptr<BlockStream>> idle;
  for (uint32_t i = 0; i < 64; ++i) {
    idle.push_back(
        *loader_->OpenStream(RoleOf(v1::MODULE_VISION, i / 8), 0, 0, 0, [] {}));
  }
  for (uint32_t rank = 8; rank < 16; ++rank) {
    auto stream =
        loader_->OpenStream(RoleOf(v1::MODULE_VISION, rank), 0, 0, 1, [] {});
    ASSERT_TRUE(stream.ok()) << stream.status();
    idle.push_back(*std::move(stream));
  }
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(idle[i]->status().ok(), i % 8 != 0) << i;
  }
}

// Streams at more steps than the cache has places for schedules.
TEST_F(LoaderTest, ComputesAScheduleOnceForAllThatWaitForIt) {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  config.mutable_serve()->set_threads(1);
  Start(config);
  absl::Notification opened;
  loader_->GetSchedule(
      0, [&opened](const auto&) { opened.WaitForNotification(); });
  std::vector<BlockingStream> streams;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    for (const uint32_t rank : {0, 1}) {
      for (uint64_t step = 1; step <= 8; ++step) {
        streams.emplace_back(loader_.get(), module, rank, step, 0, 1);
      }
    }
  }
  opened.Notify();
  for (BlockingStream& stream : streams) EXPECT_TRUE(stream.Next().ok());
  EXPECT_EQ(loader_->stats().schedules_computed, 1 + 8);
}

TEST_F(LoaderTest, ReturnsSchedules) {
  Mutex mutex;
  CondVar changed;
  std::optional<uint64_t> step;
  loader_->GetSchedule(7, [&](const auto& schedule) {
    MutexLock lock(&mutex);
    step = (*schedule)->step();
    changed.NotifyAll();
  });
  MutexLock lock(&mutex);
  while (!step.has_value()) changed.Wait(&mutex);
  EXPECT_EQ(*step, 7);
}

using Action = StreamProgress::Action;
using ::testing::ElementsAre;
using ::testing::Pair;

using Ids = std::vector<std::pair<uint64_t, uint32_t>>;

// The number of micro-batches of each step.
using MicroBatches = std::function<uint32_t(uint64_t step)>;

MicroBatches Always(uint32_t micro_batches) {
  return [=](uint64_t) { return micro_batches; };
}

// Plans and begins everything that may begin now.
Ids BeginAll(StreamProgress* progress, const MicroBatches& micro_batches) {
  Ids begun;
  while (true) {
    const StreamProgress::Decision next = progress->Next();
    if (next.action == Action::kNothing) return begun;
    if (next.action == Action::kPlan) {
      progress->OnPlanned(10, micro_batches(next.block.step));
    } else {
      EXPECT_EQ(next.bytes, 10u);
      begun.emplace_back(next.block.step, next.block.micro_batch);
      progress->OnBegun();
    }
  }
}

TEST(StreamProgressTest, BeginsTheWindowInOrderAndMovesItAsBlocksAreTaken) {
  StreamProgress progress({{5, 1}, 0}, 1);
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(5, 1), Pair(6, 0), Pair(6, 1)));
  progress.OnTaken();  // (5, 1): the next to be taken is of step 6
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(7, 0), Pair(7, 1)));
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, Always(2)), ElementsAre());
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(8, 0), Pair(8, 1)));
}

TEST(StreamProgressTest, NamesTheNextBlockToBegin) {
  StreamProgress progress({{5, 1}, 3}, 1);
  EXPECT_EQ(progress.to_begin(), (BlockId{5, 1}));
  EXPECT_TRUE(progress.goes_on());
  BeginAll(&progress, Always(2));
  EXPECT_EQ(progress.to_begin(), (BlockId{7, 0}));
  EXPECT_TRUE(progress.goes_on());
  progress.OnTaken();
  BeginAll(&progress, Always(2));
  EXPECT_EQ(progress.to_begin(), (BlockId{8, 0}));
  EXPECT_FALSE(progress.goes_on());  // the end

  StreamProgress stopped({{5, 1}, 3}, 1);
  stopped.Stop();
  EXPECT_FALSE(stopped.goes_on());
}

TEST(StreamProgressTest, GivesBackTheLastBlockBegunAndBeginsItAgain) {
  StreamProgress progress({{5, 1}, 0}, 1);
  EXPECT_EQ(BeginAll(&progress, Always(2)), (Ids{{5, 1}, {6, 0}, {6, 1}}));
  progress.GiveBack();
  progress.GiveBack();
  EXPECT_EQ(progress.to_begin(), (BlockId{6, 0}));
  EXPECT_FALSE(progress.MayGiveBack());  // the oldest
  EXPECT_EQ(BeginAll(&progress, Always(2)), (Ids{{6, 0}, {6, 1}}));
  // While the next one is being planned, that plan is of no use.
  progress.OnTaken();
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  progress.GiveBack();
  EXPECT_EQ(progress.Next().action, Action::kNothing);
  EXPECT_TRUE(progress.DropsPlan());
  EXPECT_FALSE(progress.DropsPlan());
  EXPECT_EQ(BeginAll(&progress, Always(2)), (Ids{{6, 1}, {7, 0}, {7, 1}}));
  // Blocks before an error stay.
  progress.Stop();
  EXPECT_FALSE(progress.MayGiveBack());
}

TEST(StreamProgressTest, WithoutPrefetchOneStepIsBuilt) {
  StreamProgress progress({{0, 0}, 0}, 0);
  EXPECT_THAT(BeginAll(&progress, Always(3)),
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(0, 2)));
}

TEST(StreamProgressTest, EndsAfterItsSteps) {
  StreamProgress progress({{5, 1}, 2}, 8);
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(5, 1), Pair(6, 0), Pair(6, 1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(progress.AllTaken());
    progress.OnTaken();
  }
  EXPECT_TRUE(progress.AllTaken());
}

// Steps 2, 3 and 4 have 3, 1 and 2 micro-batches.
TEST(StreamProgressTest, EveryStepHasItsOwnNumberOfMicroBatches) {
  const auto of_step = [](uint64_t step) {
    return std::vector<uint32_t>{3, 1, 2}[(step - 2) % 3];
  };
  StreamProgress progress({{2, 1}, 3}, 1);
  EXPECT_THAT(BeginAll(&progress, of_step),
              ElementsAre(Pair(2, 1), Pair(2, 2), Pair(3, 0)));
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, of_step), ElementsAre());
  progress.OnTaken();  // (2, 2): the next to be taken is of step 3
  EXPECT_THAT(BeginAll(&progress, of_step),
              ElementsAre(Pair(4, 0), Pair(4, 1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(progress.AllTaken());
    progress.OnTaken();
    EXPECT_THAT(BeginAll(&progress, of_step), ElementsAre());
  }
  EXPECT_TRUE(progress.AllTaken());
}

TEST(StreamProgressTest, StepsPastTheLastNumberDoNotWrap) {
  constexpr uint64_t kMaxCount = std::numeric_limits<uint64_t>::max();
  StreamProgress progress({{kMaxCount - 1, 0}, 100}, 0);
  EXPECT_THAT(BeginAll(&progress, Always(1)),
              ElementsAre(Pair(kMaxCount - 1, 0)));
  EXPECT_FALSE(progress.AllTaken());
}

TEST(StreamProgressTest, PlansOneBlockAtATimeAndAsksUntilItIsBegun) {
  StreamProgress progress({{3, 0}, 0}, 1);
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  EXPECT_EQ(progress.Next().action, Action::kNothing);
  progress.OnPlanned(7, 2);
  for (int i = 0; i < 2; ++i) {
    const StreamProgress::Decision begin = progress.Next();
    EXPECT_EQ(begin.action, Action::kBegin);
    EXPECT_EQ(begin.distance, 0u);
    EXPECT_EQ(begin.bytes, 7u);
  }
  progress.OnBegun();
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  progress.OnPlanned(1, 2);
  EXPECT_EQ(progress.Next().distance, 1u);
}

TEST(StreamProgressTest, DoesNothingOnceStopped) {
  StreamProgress progress({{0, 0}, 0}, 1);
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  progress.OnPlanned(1, 1);
  progress.Stop();
  EXPECT_EQ(progress.Next().action, Action::kNothing);
}

}  // namespace

}  // namespace ballast
