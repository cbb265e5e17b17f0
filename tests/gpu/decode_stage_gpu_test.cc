// Images that travel encoded, on their way through the GPU's JPEG engines: two
// batches in flight, a trainer that takes its time, a peer that never comes.
// encoded_images_gpu_test compares what comes out.

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/integration/encoded_job.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"

namespace ballast {
namespace {

using Batch = BatchRef<DeviceBatch>;

constexpr absl::Duration kPatience = absl::Seconds(30);

std::unique_ptr<TestCluster> Start(const EncodedJob& job) {
  return OrDie(TestCluster::Start(GetConfig(job, MixedJpegs(), "device")));
}

CudaTrainerShim::Options GetOptions(const TestCluster& cluster) {
  CudaTrainerShim::Options options;
  options.servers.addresses = cluster.addresses();
  options.source.role.set_module(v1::MODULE_VISION);
  return options;
}

// Encoded images of the step of a batch.
uint64_t EncodedOf(const v1::StepSchedule& schedule) {
  uint64_t images = 0;
  for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
    for (const uint32_t bytes : each.encoded_bytes()) images += bytes != 0;
  }
  return images;
}

uint64_t Decoded(const CudaTrainerShim& shim) {
  const JpegEngineCounts counts = shim.decoded();
  return counts.by_hardware + counts.by_host;
}

// Whether `images` images are decoded before our patience ends.
bool DecodesAtLeast(const CudaTrainerShim& shim, uint64_t images) {
  const absl::Time end = absl::Now() + kPatience;
  while (Decoded(shim) < images) {
    if (absl::Now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// While the trainer has a batch, the two after it are decoded, and no more.
TEST(DecodeStageGpuTest, TwoBatchesAreDecodedAhead) {
  EncodedJob job;  // two micro-batches a step
  const auto cluster = Start(job);
  const auto shim = OrDie(CudaTrainerShim::Create(GetOptions(*cluster)));
  const CudaStream stream = OrDie(CudaStream::Create());
  const Batch first = OrDie(shim->Next(stream.get()));
  ASSERT_EQ(first->num_micro_batches, 2u);
  const uint64_t step = EncodedOf(*first->schedule);
  ASSERT_GT(step, 0u);
  EXPECT_TRUE(DecodesAtLeast(*shim, step + 1)) << Decoded(*shim);
  const Batch second = OrDie(shim->Next(stream.get()));
  const Batch third = OrDie(shim->Next(stream.get()));
  EXPECT_TRUE(DecodesAtLeast(*shim, step + EncodedOf(*third->schedule)));
}

// Batches that are decoded count as given to the device, however long the
// trainer leaves them.
TEST(DecodeStageGpuTest, ASlowTrainerIsNoHungDevice) {
  EncodedJob job;
  const auto cluster = Start(job);
  CudaTrainerShim::Options options = GetOptions(*cluster);
  options.timeout = absl::Milliseconds(1500);
  const absl::Duration longer = 2 * options.timeout;
  const auto shim = OrDie(CudaTrainerShim::Create(std::move(options)));
  const CudaStream stream = OrDie(CudaStream::Create());
  const Batch first = OrDie(shim->Next(stream.get()));
  ASSERT_TRUE(DecodesAtLeast(*shim, EncodedOf(*first->schedule)));
  absl::SleepFor(longer);
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Batch> next = shim->Next(stream.get());
    ASSERT_TRUE(next.ok()) << next.status();
  }
}

// Next waits for an exchange with a peer that never comes, until it is
// cancelled; nothing hangs then.
TEST(DecodeStageGpuTest, CancelEndsAWaitForFilesOfAPeer) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  const auto cluster = Start(job);
  auto group = MakeGroup(Exchange::kInProcess, 2);
  CudaTrainerShim::Options options = GetOptions(*cluster);
  options.communicator = std::move(group[0]);
  auto shim = OrDie(CudaTrainerShim::Create(std::move(options)));
  const CudaStream stream = OrDie(CudaStream::Create());
  absl::Status status;
  std::thread trainer([&] {
    OrDie(cudaSetDevice(0), "choosing the device");
    status = shim->Next(stream.get()).status();
  });
  shim->Cancel();
  trainer.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  shim = nullptr;
}

// A shim may go at any time, with two batches on the engines.
TEST(DecodeStageGpuTest, EndsWithBatchesInFlight) {
  EncodedJob job;
  const auto cluster = Start(job);
  const CudaStream stream = OrDie(CudaStream::Create());
  for (int batches = 0; batches < 4; ++batches) {
    const auto shim = OrDie(CudaTrainerShim::Create(GetOptions(*cluster)));
    std::vector<Batch> held;
    for (int i = 0; i < batches; ++i) {
      held.push_back(OrDie(shim->Next(stream.get())));
    }
  }
}

}  // namespace
}  // namespace ballast
