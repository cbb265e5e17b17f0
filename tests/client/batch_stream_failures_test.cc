// Servers that fail, hang or give up a connection: the stream's next server and
// position.
#include "client/batch_stream.h"

#include <utility>
#include <vector>

#include "client/block_assembler.h"
#include "tests/client/batch_stream_fixture.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;

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
