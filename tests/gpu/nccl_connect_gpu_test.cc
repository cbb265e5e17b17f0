// Connecting over the real NCCL: peers that never come, or that leave before
// the first exchange.

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nccl_communicator.h"
#include "trainer_shim/cuda/nccl_connect.h"

namespace ballast {
namespace {

// Far above what NCCL takes to end a connection, far below a hang.
constexpr absl::Duration kBound = absl::Seconds(60);

// The error of rank 0 of two, which waits alone, and how long that took.
std::pair<absl::Status, absl::Duration> ConnectAlone(
    const NcclOptions& options) {
  OrDie(cudaSetDevice(0), "choosing the device");
  const absl::Time start = absl::Now();
  const auto made = CreateNcclCommunicator(OrDie(MakeNcclId()), 0, 2, options);
  return {made.status(), absl::Now() - start};
}

TEST(NcclConnectGpuTest, APeerThatNeverComesEndsItAtTheTimeout) {
  NcclOptions options;
  options.connect_timeout = absl::Seconds(3);
  const auto [status, took] = ConnectAlone(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_GE(took, absl::Seconds(3));
  EXPECT_LE(took, kBound);
}

// What was given up leaves nothing behind that disturbs the next group.
TEST(NcclConnectGpuTest, TheNextGroupOfTheProcessConnects) {
  NcclOptions options;
  options.connect_timeout = absl::Seconds(2);
  ASSERT_FALSE(ConnectAlone(options).first.ok());
  for (int round = 0; round < 2; ++round) {
    const auto group = MakeGroup(Exchange::kNccl, DeviceCount());
    for (const auto& end : group) {
      EXPECT_TRUE(end->Check().ok());
      end->Abort(absl::CancelledError("the test ends"));
      EXPECT_FALSE(end->Check().ok());
    }
  }
}

// Rank 1 connects and never exchanges: rank 0, whose first exchange waits for
// it inside NCCL, ends when another thread aborts.
void ExpectAbortEndsAFirstExchange(
    std::vector<std::unique_ptr<Communicator>> group) {
  const absl::Time start = absl::Now();
  std::promise<void> ended;
  std::thread trainer([&] {
    OrDie(cudaSetDevice(0), "choosing the device");
    const CudaStream stream = OrDie(CudaStream::Create());
    DeviceBuffer buffer = OrDie(DeviceBuffer::Create(1 << 20));
    const absl::Span<uint8_t> bytes(buffer.data(), buffer.size() / 2);
    const absl::Status exchanged = group[0]->AllToAllV(
        {{1, bytes}},
        {{1, absl::Span<uint8_t>(buffer.data() + bytes.size(), bytes.size())}},
        stream.get());
    const absl::Status done = stream.Synchronize();
    EXPECT_TRUE(!exchanged.ok() || !done.ok() || !group[0]->Check().ok());
    ended.set_value();
  });
  std::thread watch([&] {
    OrDie(cudaSetDevice(0), "choosing the device");
    EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(3)),
              std::future_status::timeout)
        << "it does not wait for rank 1";
    EXPECT_TRUE(group[0]->Check().ok());
    group[0]->Abort(absl::DeadlineExceededError("rank 1 is late"));
  });
  trainer.join();
  watch.join();
  EXPECT_LE(absl::Now() - start, kBound);
  group[1]->Abort(absl::CancelledError("the test ends"));
}

TEST(NcclConnectGpuTest, AbortEndsAFirstExchangeWhosePeerIsGone) {
  if (DeviceCount() == 1) GTEST_SKIP() << "needs two GPUs";
  ExpectAbortEndsAFirstExchange(MakeGroup(Exchange::kNccl, 2));
}

// The trainer's communicator, which blocks, is not aborted.
TEST(NcclConnectGpuTest, AbortEndsAFirstExchangeOfABorrowedGroup) {
  if (DeviceCount() == 1) GTEST_SKIP() << "needs two GPUs";
  const NcclApi* api = OrDie(LoadNccl());
  ncclUniqueId id;
  ASSERT_EQ(api->GetUniqueId(&id), ncclSuccess);
  ncclComm_t trainers[2] = {};
  std::vector<std::unique_ptr<Communicator>> group(2);
  const auto on_both = [](const std::function<void(int rank)>& run) {
    std::thread peer([&] { run(1); });
    run(0);
    peer.join();
  };
  on_both([&](int rank) {
    OrDie(cudaSetDevice(rank), "choosing the device");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ASSERT_EQ(api->CommInitRankConfig(&trainers[rank], 2, id, rank, &config),
              ncclSuccess);
    group[rank] = OrDie(BorrowNcclCommunicator(trainers[rank], {}));
  });
  ExpectAbortEndsAFirstExchange(std::move(group));
  on_both([&](int rank) {
    OrDie(cudaSetDevice(rank), "choosing the device");
    const CudaStream stream = OrDie(CudaStream::Create());
    const DeviceBuffer byte = OrDie(DeviceBuffer::Create(1));
    EXPECT_EQ(api->Broadcast(byte.data(), byte.data(), 1, ncclUint8, 0,
                             trainers[rank], stream.get()),
              ncclSuccess);
    OrDie(stream.Synchronize());
    EXPECT_EQ(api->CommDestroy(trainers[rank]), ncclSuccess);
  });
}

}  // namespace
}  // namespace ballast
