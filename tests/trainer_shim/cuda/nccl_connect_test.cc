// Connecting over NCCL with a peer that never comes, one that leaves, and one
// that comes late. NCCL is played; tests/gpu has the real one.
#include "trainer_shim/cuda/nccl_connect.h"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer_shim/cuda/fake_nccl.h"
#include "trainer_shim/cuda/nccl_communicator.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A clock on which each sleep passes at once.
class FastClock : public Clock {
 public:
  absl::Time Now() override { return now_; }
  std::unique_ptr<Sleeper> NewSleeper() override {
    class FastSleeper : public Sleeper {
     public:
      explicit FastSleeper(absl::Time* now) : now_(now) {}
      bool Sleep(absl::Duration duration) override {
        *now_ += duration;
        return true;
      }
      void Wake() override {}

     private:
      absl::Time* const now_;
    };
    return std::make_unique<FastSleeper>(&now_);
  }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

class NcclConnectTest : public ::testing::Test {
 protected:
  NcclConnectTest() {
    options_.clock = &clock_;
    options_.connect_timeout = absl::Seconds(30);
  }

  absl::StatusOr<NcclPair> Connect() {
    return ConnectNccl(nccl_.api(), ncclUniqueId(), 1, 4, options_);
  }
  absl::Duration passed() { return clock_.Now() - absl::UnixEpoch(); }

  FakeNccl nccl_;
  FastClock clock_;
  NcclOptions options_;
};

TEST_F(NcclConnectTest, WaitsForPeersThatComeLate) {
  nccl_.looks_to_connect = 100;
  nccl_.looks_to_split = 10;
  const auto pair = Connect();
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->parent, nccl_.parent());
  EXPECT_EQ(pair->exchange, nccl_.child());
  EXPECT_THAT(nccl_.calls(),
              ElementsAre("init non-blocking", "split parent blocking"));
}

TEST_F(NcclConnectTest, BuffersOfUpTo21PeersTakeAtMost252MiB) {
  // 12 MiB for each thread block and peer: docs/nccl_memory.json.
  for (uint32_t peers = 1; peers <= 21; ++peers) {
    const int ctas = DefaultMaxCtas(peers + 1);
    EXPECT_GE(ctas, 1) << peers;
    EXPECT_LE(ctas, 8) << peers;
    EXPECT_LE(12 * ctas * peers, 252u) << peers;
    EXPECT_TRUE(ctas == 8 || 12 * (ctas + 1) * peers > 252u) << peers;
  }
  EXPECT_EQ(DefaultMaxCtas(1), 8);
  EXPECT_EQ(DefaultMaxCtas(16384), 1);
}

TEST_F(NcclConnectTest, BothCommunicatorsHaveTheLimit) {
  ASSERT_TRUE(Connect().ok());
  EXPECT_THAT(nccl_.max_ctas, ElementsAre(7, 7));  // of four ranks
  nccl_.max_ctas.clear();
  options_.max_ctas = 32;
  ASSERT_TRUE(Connect().ok());
  EXPECT_THAT(nccl_.max_ctas, ElementsAre(32, 32));
}

TEST_F(NcclConnectTest, APeerThatNeverComesEndsItAtTheTimeout) {
  nccl_.looks_to_connect = -1;
  const absl::Status status = Connect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 of 4"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("30s"));
  EXPECT_GE(passed(), absl::Seconds(30));
  EXPECT_LE(passed(), absl::Seconds(31));
  EXPECT_THAT(nccl_.calls(), ElementsAre("init non-blocking", "abort parent"));
}

TEST_F(NcclConnectTest, APeerThatLeavesBetweenTheTwoEndsItToo) {
  nccl_.looks_to_split = -1;
  const absl::Status status = Connect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(nccl_.calls(),
              ElementsAre("init non-blocking", "split parent blocking",
                          "abort parent"));
}

TEST_F(NcclConnectTest, NcclsErrorsEndIt) {
  nccl_.looks_to_connect = 3;
  nccl_.connected = ncclRemoteError;
  absl::Status status = Connect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("its cause"));
  nccl_.connected = ncclSuccess;
  nccl_.split = ncclSystemError;
  status = Connect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(
      nccl_.calls(),
      ElementsAre("init non-blocking", "abort parent", "init non-blocking",
                  "split parent blocking", "abort parent"));
}

TEST_F(NcclConnectTest, SplitsATrainersCommunicatorThatBlocks) {
  nccl_.trainers_blocks = true;
  const auto pair = SplitNccl(nccl_.api(), nccl_.trainers(), 1, 4, options_);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->parent, nccl_.parent());
  EXPECT_EQ(pair->exchange, nccl_.child());
  EXPECT_THAT(nccl_.calls(), ElementsAre("split trainers non-blocking",
                                         "split parent blocking"));
}

// The trainer's communicator stays the trainer's, whatever happens.
TEST_F(NcclConnectTest, SplitsATrainersCommunicatorThatDoesNotBlock) {
  nccl_.looks_to_split = 5;
  const auto pair = SplitNccl(nccl_.api(), nccl_.trainers(), 1, 4, options_);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->parent, nccl_.parent());
  EXPECT_EQ(pair->exchange, nccl_.child());
  nccl_.looks_to_split = -1;
  EXPECT_EQ(
      SplitNccl(nccl_.api(), nccl_.trainers(), 1, 4, options_).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(nccl_.calls(), ElementsAre("split trainers non-blocking",
                                         "split parent blocking",
                                         "split trainers non-blocking"));
}

TEST_F(NcclConnectTest, APeerThatLeavesBetweenTheTwoSplitsEndsThemToo) {
  nccl_.trainers_blocks = true;
  nccl_.looks_to_split = -1;
  EXPECT_EQ(
      SplitNccl(nccl_.api(), nccl_.trainers(), 1, 4, options_).status().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(nccl_.calls(),
              ElementsAre("split trainers non-blocking",
                          "split parent blocking", "abort parent"));
}

// NCCL connects two ranks when they first exchange: a peer that has died by
// then must not hold the caller for ever.
TEST_F(NcclConnectTest, AbortEndsAnExchangeThatWaitsInsideNccl) {
  nccl_.group_waits = true;
  const NcclApi api = nccl_.api();
  const auto communicator =
      NcclCommunicatorOver(&api, {nccl_.parent(), nccl_.child()}, 1, 4);
  absl::Status exchanged;
  std::thread trainer(
      [&] { exchanged = communicator->AllToAllV({}, {}, nullptr); });
  nccl_.AwaitCall("group end");
  communicator->Abort(absl::DeadlineExceededError("a peer is late"));
  trainer.join();
  EXPECT_FALSE(exchanged.ok());
  EXPECT_EQ(communicator->AllToAllV({}, {}, nullptr).message(),
            "a peer is late");
  EXPECT_EQ(communicator->Check().message(), "a peer is late");
  EXPECT_THAT(nccl_.calls(),
              ElementsAre("group end", "abort parent", "abort child"));
}

// The thread that aborts an exchange which lasts too long also checks it.
TEST_F(NcclConnectTest, CheckDoesNotWaitForAnExchangeInsideNccl) {
  nccl_.group_waits = true;
  const NcclApi api = nccl_.api();
  const auto communicator =
      NcclCommunicatorOver(&api, {nccl_.parent(), nccl_.child()}, 1, 4);
  std::thread trainer(
      [&] { communicator->AllToAllV({}, {}, nullptr).IgnoreError(); });
  nccl_.AwaitCall("group end");
  auto checked =
      std::async(std::launch::async, [&] { return communicator->Check(); });
  EXPECT_EQ(checked.wait_for(std::chrono::seconds(10)),
            std::future_status::ready);
  communicator->Abort(absl::DeadlineExceededError("a peer is late"));
  trainer.join();
  checked.wait();
}

TEST_F(NcclConnectTest, LeavesTheExchangeBeforeItsParent) {
  const NcclApi api = nccl_.api();
  NcclCommunicatorOver(&api, {nccl_.parent(), nccl_.child()}, 1, 4).reset();
  EXPECT_THAT(nccl_.calls(), ElementsAre("destroy child", "destroy parent"));
}

}  // namespace
}  // namespace ballast
