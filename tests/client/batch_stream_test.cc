#include "client/batch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_batch_fetcher.h"
#include "tests/fakes/formula_block.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/no_threads.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMicroBatches = 2;
constexpr size_t kBlockBytes = 200;

// Block `n` of the stream, counted from step 0; each byte behind its header is
// `n`.
FakeBlock NumberedBlock(uint32_t n, size_t bytes = kBlockBytes) {
  const uint64_t step = n / kMicroBatches;
  const uint32_t micro_batch = n % kMicroBatches;
  return {step, micro_batch,
          TinyBlock(step, micro_batch, kMicroBatches, bytes, n)};
}

// A block of a step that has `micro_batches`.
FakeBlock BlockOf(uint64_t step, uint32_t micro_batch, uint32_t micro_batches) {
  return {step, micro_batch,
          TinyBlock(step, micro_batch, micro_batches, kBlockBytes)};
}

BatchStream::Options SomeOptions(uint64_t steps, ManualClock* clock) {
  BatchStream::Options options;
  options.request.role.set_module(v1::MODULE_VISION);
  options.request.steps = steps;
  options.clock = clock;
  options.failover.jitter = 0;
  // Only tests of hangs have a guard that sleeps.
  options.failover.silent_after = absl::InfiniteDuration();
  options.failover.slow_after = absl::InfiniteDuration();
  return options;
}

class BatchStreamTest : public ::testing::Test {
 protected:
  std::unique_ptr<BatchStream> Start(const BatchStream::Options& options) {
    auto stream = BatchStream::Create(server_.connect(), options);
    EXPECT_TRUE(stream.ok()) << stream.status();
    return *std::move(stream);
  }

  // Takes blocks `first` to `last` and releases them.
  void ExpectBlocks(BatchStream* stream, uint32_t first, uint32_t last) {
    for (uint32_t n = first; n <= last; ++n) {
      const auto block = stream->Next();
      ASSERT_TRUE(block.ok()) << "block " << n << ": " << block.status();
      EXPECT_EQ((*block)->step(), n / kMicroBatches);
      EXPECT_EQ((*block)->micro_batch(), n % kMicroBatches);
      EXPECT_EQ((*block)->bytes().back(), n);
    }
  }

  void ExpectError(BatchStream* stream, absl::StatusCode code,
                   const std::string& message) {
    for (int i = 0; i < 2; ++i) {  // final
      const auto block = stream->Next();
      EXPECT_EQ(block.status().code(), code) << block.status();
      EXPECT_THAT(std::string(block.status().message()), HasSubstr(message));
    }
  }

  ManualClock clock_;
  FakeBatchServer server_;
};

TEST_F(BatchStreamTest, DeliversAllInOrderThenEnds) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1), NumberedBlock(2),
                         NumberedBlock(3), absl::OutOfRangeError("done")});
  const auto stream = Start(SomeOptions(2, &clock_));
  ExpectBlocks(stream.get(), 0, 3);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 2");
}

TEST_F(BatchStreamTest, FetchesAheadWithinTheBound) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1), NumberedBlock(2),
                         NumberedBlock(3), NumberedBlock(4)});
  BatchStream::Options options = SomeOptions(0, &clock_);
  options.request.max_bytes = 3 * kBlockBytes;
  const auto stream = Start(options);
  server_.AwaitBlockedFetch();
  EXPECT_EQ(server_.delivered(), 3);

  // Taking a block makes no room; destroying it does.
  auto taken = stream->Next();
  ASSERT_TRUE(taken.ok());
  server_.AwaitBlockedFetch();
  EXPECT_EQ(server_.delivered(), 3);
  taken->reset();
  server_.AwaitDelivered(4);
  server_.AwaitBlockedFetch();
  EXPECT_EQ(server_.delivered(), 4);
  EXPECT_EQ(server_.most_held_bytes(), 3 * kBlockBytes);
}

TEST_F(BatchStreamTest, BlockLargerThanTheBoundPassesAlone) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1, 10 * kBlockBytes), NumberedBlock(2)});
  BatchStream::Options options = SomeOptions(0, &clock_);
  options.request.max_bytes = 2 * kBlockBytes;
  const auto stream = Start(options);
  ExpectBlocks(stream.get(), 0, 2);
  EXPECT_EQ(server_.most_held_bytes(), 10 * kBlockBytes);
}

TEST_F(BatchStreamTest, TheCountBoundsTinyBlocks) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), NumberedBlock(2), NumberedBlock(3)});
  BatchStream::Options options = SomeOptions(0, &clock_);
  options.max_queued = 2;
  const auto stream = Start(options);
  server_.AwaitDelivered(3);  // two queued, one held by the thread
  EXPECT_EQ(server_.delivered(), 3);
  ExpectBlocks(stream.get(), 0, 3);
}

TEST_F(BatchStreamTest, RefusesBlocksOutOfOrder) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(2)});
  const auto stream = Start(SomeOptions(0, &clock_));
  ExpectBlocks(stream.get(), 0, 0);
  ExpectError(stream.get(), absl::StatusCode::kInternal,
              "step 1 micro-batch 0, wanted step 0 micro-batch 1");
}

// Steps of 1, 3 and 2 micro-batches, with failures within a step and between
// two steps.
TEST_F(BatchStreamTest, EveryStepHasItsOwnNumberOfMicroBatches) {
  server_.AddConnection(
      {BlockOf(7, 0, 1), BlockOf(8, 0, 3), absl::UnavailableError("draining")});
  server_.AddConnection(
      {BlockOf(8, 1, 3), BlockOf(8, 2, 3), absl::UnavailableError("draining")});
  server_.AddConnection(
      {BlockOf(9, 0, 2), BlockOf(9, 1, 2), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(3, &clock_);
  options.request.step = 7;
  const auto stream = Start(options);
  for (int i = 0; i < 2; ++i) {
    clock_.AwaitSleepers(1);
    clock_.Advance(options.failover.first_backoff);
  }
  for (const auto& [step, micro_batch] :
       std::vector<std::pair<uint64_t, uint32_t>>{
           {7, 0}, {8, 0}, {8, 1}, {8, 2}, {9, 0}, {9, 1}}) {
    const auto block = stream->Next();
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_EQ((*block)->step(), step);
    EXPECT_EQ((*block)->micro_batch(), micro_batch);
  }
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 10");
  const std::vector<FetchRequest> requests = server_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].step, 8u);
  EXPECT_EQ(requests[1].micro_batch, 1u);
  EXPECT_EQ(requests[1].steps, 2u);
  EXPECT_EQ(requests[2].step, 9u);
  EXPECT_EQ(requests[2].micro_batch, 0u);
  EXPECT_EQ(requests[2].steps, 1u);
}

TEST_F(BatchStreamTest, RefusesAStepWhoseBlocksDisagreeOnItsEnd) {
  server_.AddConnection({BlockOf(0, 0, 2), BlockOf(1, 0, 2)});
  auto stream = Start(SomeOptions(0, &clock_));
  ASSERT_TRUE(stream->Next().ok());
  ExpectError(stream.get(), absl::StatusCode::kInternal,
              "step 1 micro-batch 0, wanted step 0 micro-batch 1");
  server_.AddConnection({BlockOf(0, 0, 1), BlockOf(0, 1, 2)});
  stream = Start(SomeOptions(0, &clock_));
  ASSERT_TRUE(stream->Next().ok());
  ExpectError(stream.get(), absl::StatusCode::kInternal,
              "step 0 micro-batch 1, wanted step 1 micro-batch 0");
}

TEST_F(BatchStreamTest, RefusesHeadersThatAreNotOfTheBlock) {
  FakeBlock cut = BlockOf(0, 0, 1);
  cut.bytes.resize(100);
  FakeBlock no_block = BlockOf(0, 0, 1);
  no_block.bytes[0] ^= 1;
  FakeBlock other_version = BlockOf(0, 0, 1);
  other_version.bytes[4] = 9;
  FakeBlock other_split = BlockOf(0, 0, 1);
  other_split.bytes[offsetof(BlockHeader, split)] = v1::SPLIT_VALID;
  const struct {
    FakeBlock block;
    std::string message;
  } cases[] = {
      {cut, "length is 100"},
      {no_block, "magic is"},
      {other_version, "version is 9, wanted 4 to 7; is the server of"},
      {{0, 0, BlockOf(5, 0, 1).bytes}, "says step 5 micro-batch 0"},
      {other_split, "header says split valid, wanted train"},
      {{0, 0, BlockOf(0, 1, 2).bytes}, "says step 0 micro-batch 1"},
      {BlockOf(0, 0, 0), "micro-batch 0 of 0 micro-batches"},
  };
  for (const auto& c : cases) {
    server_.AddConnection({c.block});
    const auto stream = Start(SomeOptions(0, &clock_));
    ExpectError(stream.get(), absl::StatusCode::kInternal, c.message);
  }
}

TEST_F(BatchStreamTest, RefusesAnEarlyEnd) {
  server_.AddConnection({NumberedBlock(0), absl::OutOfRangeError("done")});
  const auto stream = Start(SomeOptions(1, &clock_));
  ExpectBlocks(stream.get(), 0, 0);
  ExpectError(stream.get(), absl::StatusCode::kInternal,
              "ended early, before step 0 micro-batch 1: done");
}

TEST_F(BatchStreamTest, CancelEndsABlockedNext) {
  server_.AddConnection({});
  const auto stream = Start(SomeOptions(0, &clock_));
  std::thread canceller([&] {
    server_.AwaitBlockedFetch();
    stream->Cancel();
  });
  ExpectError(stream.get(), absl::StatusCode::kCancelled, "cancelled");
  canceller.join();
}

TEST_F(BatchStreamTest, CancelDropsWhatWasFetched) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1)});
  const auto stream = Start(SomeOptions(0, &clock_));
  server_.AwaitDelivered(2);
  server_.AwaitBlockedFetch();
  stream->Cancel();
  ExpectError(stream.get(), absl::StatusCode::kCancelled, "cancelled");
  EXPECT_EQ(server_.held_bytes(), 0u);
}

TEST_F(BatchStreamTest, AProcessAtItsLimitOfThreadsIsAnError) {
  const NoThreads limit;
  const auto stream =
      BatchStream::Create(server_.connect(), SomeOptions(2, &clock_));
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(stream.status().message()),
              HasSubstr("no thread to fetch batches"));
}

TEST_F(BatchStreamTest, RefusesBadOptions) {
  const auto message = [&](const BatchStream::Options& options) {
    const auto stream = BatchStream::Create(server_.connect(), options);
    EXPECT_EQ(stream.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(stream.status().message());
  };
  BatchStream::Options options = SomeOptions(2, &clock_);
  options.request.step = UINT64_MAX - 1;
  EXPECT_THAT(message(options), HasSubstr("pass the last step"));
  options = SomeOptions(0, &clock_);
  options.servers.clear();
  EXPECT_THAT(message(options), HasSubstr("servers are 0"));
  options = SomeOptions(0, &clock_);
  options.failover.max_backoff = absl::ZeroDuration();
  EXPECT_THAT(message(options), HasSubstr("max_backoff is 0"));
}

constexpr absl::Duration kSilent = absl::Seconds(10);
constexpr absl::Duration kSlow = absl::Seconds(30);

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class HangTimerTest : public ::testing::Test {
 protected:
  HangTimerTest() { timer_.Start(At(0)); }
  absl::Status Check(int seconds, uint64_t bytes, bool may_send = true) {
    return timer_.Check(At(seconds), {bytes, may_send});
  }
  HangTimer timer_{kSilent, kSlow};
};

TEST_F(HangTimerTest, ASilentServerHangs) {
  EXPECT_TRUE(Check(9, 0).ok());
  const absl::Status hung = Check(10, 0);
  EXPECT_EQ(hung.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(hung.message(), HasSubstr("no byte for 10s (after 0 bytes"));
}

TEST_F(HangTimerTest, BytesAreASignOfLife) {
  EXPECT_TRUE(Check(9, 5).ok());
  EXPECT_TRUE(Check(18, 5).ok());
  EXPECT_TRUE(Check(18, 6).ok());
  EXPECT_TRUE(Check(27, 6).ok());
  EXPECT_THAT(Check(28, 6).message(), HasSubstr("no byte for 10s (after 6"));
}

TEST_F(HangTimerTest, AServerThatTricklesIsTooSlow) {
  for (int second = 1; second < 30; ++second) {
    EXPECT_TRUE(Check(second, second).ok()) << second;
  }
  const absl::Status slow = Check(30, 30);
  EXPECT_EQ(slow.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(slow.message(), HasSubstr("30 bytes of the block"));
}

// The client holds its whole allowance: the server waits for the client.
TEST_F(HangTimerTest, AServerWithoutCreditDoesNotHang) {
  EXPECT_TRUE(Check(1000, 0, false).ok());
  EXPECT_TRUE(Check(1009, 0).ok());
  EXPECT_FALSE(Check(1010, 0).ok());
}

TEST_F(HangTimerTest, EveryBlockRestartsTheTimer) {
  EXPECT_TRUE(Check(9, 100).ok());
  timer_.Start(At(20));
  EXPECT_TRUE(Check(29, 0).ok());
  EXPECT_FALSE(Check(30, 0).ok());
}

using ::testing::ElementsAre;

// Servers that fail, hang or give up a connection: the stream's next server and
// position.

TEST_F(BatchStreamTest, ResumesAtTheNextBlock) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1), NumberedBlock(2),
                         absl::UnavailableError("draining")});
  server_.AddConnection({NumberedBlock(3), NumberedBlock(4),
                         absl::UnavailableError("draining again")});
  server_.AddConnection({NumberedBlock(5), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(3, &clock_);
  options.request.fingerprint = "f";
  const auto stream = Start(options);
  for (int i = 0; i < 2; ++i) {
    clock_.AwaitSleepers(1);
    clock_.Advance(options.failover.first_backoff);
  }
  ExpectBlocks(stream.get(), 0, 5);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 3");

  const std::vector<FetchRequest> requests = server_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].step, 1u);
  EXPECT_EQ(requests[1].micro_batch, 1u);
  EXPECT_EQ(requests[1].steps, 2u);
  EXPECT_EQ(requests[1].fingerprint, "f");
  EXPECT_EQ(requests[2].step, 2u);
  EXPECT_EQ(requests[2].micro_batch, 1u);
  EXPECT_EQ(requests[2].steps, 1u);
  // A block between two failures restarts the count.
  EXPECT_THAT(clock_.sleeps(), ElementsAre(options.failover.first_backoff,
                                           options.failover.first_backoff));
}

TEST_F(BatchStreamTest, DoesNotResumeAfterTheLastBlock) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), absl::UnavailableError("gone")});
  const auto stream = Start(SomeOptions(1, &clock_));
  ExpectBlocks(stream.get(), 0, 1);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 1");
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(BatchStreamTest, GivesUpWhenItsPatienceIsOver) {
  server_.AddConnection({NumberedBlock(0), absl::UnavailableError("first")});
  for (int i = 0; i < 3; ++i) {
    server_.AddFailedConnection(absl::UnavailableError("refused"));
  }
  BatchStream::Options options = SomeOptions(1, &clock_);
  options.failover.first_backoff = absl::Seconds(2);
  options.failover.max_backoff = absl::Seconds(5);
  options.failover.patience = absl::Seconds(15);
  const auto stream = Start(options);
  for (int i = 0; i < 3; ++i) {
    clock_.AwaitSleepers(1);
    clock_.Advance(absl::Seconds(5));
  }
  ExpectBlocks(stream.get(), 0, 0);  // received blocks are not lost
  ExpectError(stream.get(), absl::StatusCode::kUnavailable,
              "gave up at step 0 micro-batch 1: the only server cannot go on, "
              "15s after the first failure; the server (failures in a row: 4, "
              "last 0 ago): refused");
  EXPECT_THAT(clock_.sleeps(), ElementsAre(absl::Seconds(2), absl::Seconds(4),
                                           absl::Seconds(5)));
}

TEST_F(BatchStreamTest, WaitsForBlocksOfThePreviousFetcher) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), absl::UnavailableError("draining")});
  server_.AddConnection({NumberedBlock(2), NumberedBlock(3)});
  BatchStream::Options options = SomeOptions(0, &clock_);
  options.request.max_bytes = 2 * kBlockBytes;
  const auto stream = Start(options);
  auto first = stream->Next();
  auto second = stream->Next();
  ASSERT_TRUE(first.ok() && second.ok());
  clock_.AwaitSleepers(1);
  clock_.Advance(options.failover.first_backoff);
  // The new connection has its own allowance, but nothing is fetched until
  // there is room.
  first->reset();
  ASSERT_TRUE(stream->Next().ok());
  EXPECT_EQ(server_.most_held_bytes(), 2 * kBlockBytes);
}

TEST_F(BatchStreamTest, ContinuesWithAnotherServerAtOnce) {
  server_.AddConnection({NumberedBlock(0), absl::UnavailableError("died")});
  server_.AddFailedConnection(absl::UnavailableError("refused"));
  server_.AddConnection(
      {NumberedBlock(1), NumberedBlock(2), absl::DataLossError("its disk")});
  server_.AddConnection({NumberedBlock(3), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(2, &clock_);
  options.servers = {"a", "b", "c", "d"};
  const auto stream = Start(options);
  ExpectBlocks(stream.get(), 0, 3);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 2");
  EXPECT_THAT(server_.servers(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(clock_.sleeps(), ElementsAre());
}

// Two releases side by side, whose blocks have other versions: a rank goes on
// at the servers of its own.
TEST_F(BatchStreamTest, AServerOfAnotherVersionIsLeft) {
  FakeBlock other = NumberedBlock(1);
  ++other.bytes[4];  // the version
  server_.AddConnection({NumberedBlock(0), other});
  server_.AddConnection({NumberedBlock(1), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(1, &clock_);
  options.servers = {"old", "new"};
  const auto stream = Start(options);
  ExpectBlocks(stream.get(), 0, 1);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 1");
  EXPECT_THAT(server_.servers(), ElementsAre(0, 1));
}

TEST_F(BatchStreamTest, AServerThatHangsIsLeft) {
  server_.AddConnection({NumberedBlock(0)});  // and then nothing
  server_.AddConnection({NumberedBlock(1), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(1, &clock_);
  options.servers = {"a", "b"};
  options.failover.silent_after = absl::Seconds(16);
  const auto stream = Start(options);
  ExpectBlocks(stream.get(), 0, 0);
  server_.AwaitBlockedFetch();
  // The guard checks every two seconds.
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(server_.requests().size(), 1u);
    clock_.AwaitSleepers(1);
    clock_.Advance(absl::Seconds(2));
  }
  ExpectBlocks(stream.get(), 1, 1);
  EXPECT_THAT(server_.servers(), ElementsAre(0, 1));
}

// A server whose client holds its whole allowance does not hang.
TEST_F(BatchStreamTest, AServerWithoutCreditIsNotLeft) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1), NumberedBlock(2),
                         NumberedBlock(3), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(2, &clock_);
  options.request.max_bytes = 2 * kBlockBytes;
  options.failover.silent_after = absl::Seconds(16);
  const auto stream = Start(options);
  auto first = stream->Next();
  auto second = stream->Next();
  server_.AwaitBlockedFetch();
  for (int i = 0; i < 100; ++i) {
    clock_.AwaitSleepers(1);
    clock_.Advance(absl::Seconds(2));
  }
  first->reset();
  second->reset();
  ExpectBlocks(stream.get(), 2, 3);
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(BatchStreamTest, LastingErrorsOfTheOnlyServerAreFinalAtOnce) {
  server_.AddConnection({NumberedBlock(0), absl::DataLossError("checksum")});
  const auto stream = Start(SomeOptions(0, &clock_));
  ExpectBlocks(stream.get(), 0, 0);
  ExpectError(stream.get(), absl::StatusCode::kDataLoss, "checksum");
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(BatchStreamTest, EndsWhileWaitingToRetry) {
  server_.AddFailedConnection(absl::UnavailableError("refused"));
  const auto stream = Start(SomeOptions(0, &clock_));
  clock_.AwaitSleepers(1);
}  // the destructor returns though the clock never advances

TEST_F(BatchStreamTest, EndsWhileEarlierBlocksAreHeld) {
  server_.AddConnection({NumberedBlock(0), absl::UnavailableError("x")});
  server_.AddConnection({NumberedBlock(1)});
  BatchStream::Options options = SomeOptions(0, &clock_);
  options.request.max_bytes = 1;
  auto stream = Start(options);
  auto held = stream->Next();
  ASSERT_TRUE(held.ok());
  clock_.AwaitSleepers(1);
  clock_.Advance(options.failover.first_backoff);
  stream.reset();
  EXPECT_EQ((*held)->bytes().back(), 0);  // blocks outlive their stream
  held->reset();
  EXPECT_EQ(server_.held_bytes(), 0u);
}

// The server gave up the connection while this process was stopped, and reuses
// the memory of the queued blocks.
TEST_F(BatchStreamTest, OverwrittenBlocksOfTheQueueAreFetchedAgain) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), NumberedBlock(2), NumberedBlock(3)});
  server_.AddConnection({NumberedBlock(1), NumberedBlock(2), NumberedBlock(3),
                         absl::OutOfRangeError("done")});
  const auto stream = Start(SomeOptions(2, &clock_));
  ExpectBlocks(stream.get(), 0, 0);
  server_.AwaitDelivered(4);
  server_.OverwriteBlocks();
  ExpectBlocks(stream.get(), 1, 3);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 2");

  const std::vector<FetchRequest> requests = server_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].step, 0u);
  EXPECT_EQ(requests[1].micro_batch, 1u);
  EXPECT_EQ(requests[1].steps, 2u);
  EXPECT_TRUE(clock_.sleeps().empty());  // the server is not at fault
}

TEST_F(BatchStreamTest, OverwrittenBlocksAreFetchedAgainAfterTheEnd) {
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), absl::OutOfRangeError("done")});
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), absl::OutOfRangeError("done")});
  const auto stream = Start(SomeOptions(1, &clock_));
  server_.AwaitDelivered(2);
  server_.OverwriteBlocks();
  ExpectBlocks(stream.get(), 0, 1);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 1");
}

// The caller found that a block was overwritten while it read it.
TEST_F(BatchStreamTest, ABlockThatIsGivenBackComesAnew) {
  server_.AddConnection({NumberedBlock(0), NumberedBlock(1), NumberedBlock(2)});
  server_.AddConnection({NumberedBlock(1), NumberedBlock(2), NumberedBlock(3),
                         absl::OutOfRangeError("done")});
  const auto stream = Start(SomeOptions(2, &clock_));
  ExpectBlocks(stream.get(), 0, 0);
  auto second = stream->Next();
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(stream->FetchAgain(*std::move(second)).ok());
  ExpectBlocks(stream.get(), 1, 3);
  ExpectError(stream.get(), absl::StatusCode::kOutOfRange, "before step 2");
}

TEST_F(BatchStreamTest, ABlockThatIsAlwaysOverwrittenEndsTheStream) {
  FakeBlock overwritten = NumberedBlock(0);
  overwritten.intact = false;
  for (int i = 0; i < OverwriteCount::kMaxFetches; ++i) {
    server_.AddConnection({overwritten});
  }
  const auto stream = Start(SomeOptions(1, &clock_));
  for (int i = 0; i < 2; ++i) {
    ExpectError(stream.get(), absl::StatusCode::kUnavailable,
                "step 0 micro-batch 0 was overwritten");
  }
  EXPECT_EQ(server_.requests().size(), size_t{OverwriteCount::kMaxFetches});
}

// Overwritten bytes have no valid header, which is not the server's fault.
TEST_F(BatchStreamTest, AnOverwrittenHeaderIsAPassingFault) {
  FakeBlock overwritten = NumberedBlock(0);
  overwritten.bytes[0] ^= 1;
  overwritten.intact = false;
  server_.AddConnection({overwritten});
  server_.AddConnection(
      {NumberedBlock(0), NumberedBlock(1), absl::OutOfRangeError("done")});
  BatchStream::Options options = SomeOptions(1, &clock_);
  const auto stream = Start(options);
  clock_.AwaitSleepers(1);
  clock_.Advance(options.failover.first_backoff);
  ExpectBlocks(stream.get(), 0, 1);
}

}  // namespace

}  // namespace ballast
