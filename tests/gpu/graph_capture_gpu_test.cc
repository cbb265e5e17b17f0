// CUDA graphs that the trainer captures in the default mode, `global`, while
// the shim's threads work. Such a capture fails if any thread makes an unsafe
// call.

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/synthetic_schedule.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/same_as_on_host.h"
#include "tests/integration/encoded_job.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Batch = BatchRef<DeviceBatch>;

constexpr int kCaptures = 300;
constexpr uint64_t kSteps = 8;

std::vector<std::unique_ptr<LoaderClient>> Clients() {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  return clients;
}

std::unique_ptr<CudaTrainerShim> MakeShim(uint64_t steps = kSteps) {
  CudaTrainerShim::Options options;
  options.source.role.set_module(v1::MODULE_VISION);
  options.source.steps = steps;
  options.pixel_type = PixelType::kFloat32;
  return OrDie(CudaTrainerShim::Create(std::move(options), Clients()));
}

// The digests of all batches as the host backend makes them.
std::vector<std::string> OnHost() {
  TrainerShim::Options options;
  options.source.role.set_module(v1::MODULE_VISION);
  options.source.steps = kSteps;
  const auto shim = OrDie(TrainerShim::Create(std::move(options), Clients()));
  std::vector<std::string> digests;
  while (true) {
    const auto batch = shim->Next();
    if (!batch.ok()) return digests;
    digests.push_back(ComputeDigest(**batch));
  }
}

std::string DigestOn(const Batch& batch, const CudaStream& stream) {
  return OrDie(batch.entry()->Digest(stream.get()));
}

// A capture in mode `global` by this thread. Nothing here relaxes the thread's
// mode, as in a trainer.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    OrDie(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal),
          "beginning a capture");
  }
  // Adds a node.
  void Add(void* memory, size_t bytes) {
    OrDie(cudaMemsetAsync(memory, 1, bytes, stream_), "capturing work");
  }
  // Ends the capture; the error of a failed one.
  cudaError_t End() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return error;
    }
    cudaGraphExec_t ready = nullptr;
    OrDie(cudaGraphInstantiate(&ready, graph, 0), "instantiating a graph");
    OrDie(cudaGraphLaunch(ready, stream_), "launching a graph");
    OrDie(cudaStreamSynchronize(stream_), "waiting for a graph");
    OrDie(cudaGraphExecDestroy(ready), "destroying a graph");
    OrDie(cudaGraphDestroy(graph), "destroying a graph");
    return cudaSuccess;
  }

 private:
  const cudaStream_t stream_;
};

// Captures graphs until there are kCaptures and `ended`. Each capture lasts
// until `progress` has grown.
void CaptureWhile(const std::atomic<uint64_t>& progress,
                  const std::atomic<bool>& ended) {
  const CudaStream stream = OrDie(CudaStream::Create());
  const DeviceBuffer memory = Filled<uint8_t>(4096, 0);
  for (int i = 0; i < kCaptures || !ended; ++i) {
    const uint64_t before = progress;
    Capture capture(stream.get());
    capture.Add(memory.data(), 4096);
    while (progress == before && !ended) std::this_thread::yield();
    capture.Add(memory.data(), 2048);
    ASSERT_EQ(capture.End(), cudaSuccess) << "capture " << i;
  }
}

// Batches come and go in one thread while another one captures. Shims begin
// and end meanwhile, too.
TEST(GraphCaptureGpuTest, CapturesSucceedWhileBatchesCome) {
  const std::vector<std::string> want = OnHost();
  MakeShim().reset();  // loads the kernels
  const CudaStream stream = OrDie(CudaStream::Create());
  std::atomic<uint64_t> progress = 0;
  std::atomic<bool> ended = false;
  std::thread trainer([&] {
    while (progress < kCaptures) {
      const auto shim = MakeShim();
      for (size_t i = 0; i < want.size(); ++i) {
        const absl::StatusOr<Batch> batch = shim->Next(stream.get());
        ASSERT_TRUE(batch.ok()) << batch.status();
        EXPECT_EQ(DigestOn(*batch, stream), want[i]);
        shim->ReportTiming((*batch)->step, (*batch)->micro_batch, 1)
            .IgnoreError();
        ++progress;
      }
      EXPECT_TRUE(absl::IsOutOfRange(shim->Next(stream.get()).status()));
    }
    ended = true;
  });
  CaptureWhile(progress, ended);
  trainer.join();
}

// The same with images that travel encoded: engines, their threads, and blocks
// in shared memory, which are pinned and unpinned.
TEST(GraphCaptureGpuTest, CapturesSucceedWhileImagesAreDecoded) {
  EncodedJob job;
  job.vision_dp = job.language_dp = 2;
  const std::string directory = MixedJpegs();
  CudaWorldOptions options;
  options.steps = 3;
  const auto on_host =
      OrDie(TestCluster::Start(GetConfig(job, directory, "host"), 1));
  const TestCluster::Batches want = OrDie(on_host->RunRanks(0, options.steps));
  const auto on_device =
      OrDie(TestCluster::Start(GetConfig(job, directory, "device"), 1));
  OrDie(RunCudaRanks(on_device->addresses(), options).status());
  std::atomic<uint64_t> progress = 0;
  std::atomic<bool> ended = false;
  std::thread trainer([&] {
    for (int round = 0; round < 4; ++round) {
      const auto got = RunCudaRanks(on_device->addresses(), options);
      ASSERT_TRUE(got.ok()) << got.status();
      ExpectSameBatches(*got, want, options.pixel_type);
      ++progress;
    }
    ended = true;
  });
  // Captures are short: many fall on each moment of a run.
  std::thread ticks([&] {
    while (!ended) {
      ++progress;
      std::this_thread::yield();
    }
  });
  CaptureWhile(progress, ended);
  trainer.join();
  ticks.join();
}

// A batch that is released while its own stream captures: its memory is used
// again only after the work that was enqueued before the capture.
TEST(GraphCaptureGpuTest, ABatchIsReleasedWhileItsStreamCaptures) {
  const std::vector<std::string> want = OnHost();
  const CudaStream stream = OrDie(CudaStream::Create());
  const CudaStream other = OrDie(CudaStream::Create());
  const DeviceBuffer memory = Filled<uint8_t>(64, 0);
  const auto shim = MakeShim();
  for (size_t i = 0; i + 1 < want.size(); i += 2) {
    Batch batch = OrDie(shim->Next(stream.get()));
    EXPECT_EQ(DigestOn(batch, stream), want[i]);
    Capture capture(stream.get());
    capture.Add(memory.data(), 64);
    batch.Reset();
    // Another thread goes on meanwhile, with other memory.
    std::thread([&] {
      const Batch next = OrDie(shim->Next(other.get()));
      EXPECT_EQ(DigestOn(next, other), want[i + 1]);
    }).join();
    EXPECT_EQ(capture.End(), cudaSuccess);
  }
  EXPECT_LE(shim->pool_entries(), 4 + 1 + 4);
}

// The same after the shim has ended: the memory is freed later.
TEST(GraphCaptureGpuTest, TheLastBatchIsReleasedWhileItsStreamCaptures) {
  const CudaStream stream = OrDie(CudaStream::Create());
  const DeviceBuffer memory = Filled<uint8_t>(64, 0);
  auto shim = MakeShim();
  Batch batch = OrDie(shim->Next(stream.get()));
  Batch second = OrDie(shim->Next(stream.get()));
  Capture capture(stream.get());
  capture.Add(memory.data(), 64);
  second.Reset();
  shim.reset();
  batch.Reset();
  EXPECT_EQ(capture.End(), cudaSuccess);
  MakeShim().reset();  // frees them
}

TEST(GraphCaptureGpuTest, AStreamThatCapturesIsRefusedAndTheShimGoesOn) {
  const std::vector<std::string> want = OnHost();
  const CudaStream stream = OrDie(CudaStream::Create());
  const DeviceBuffer memory = Filled<uint8_t>(64, 0);
  const auto shim = MakeShim();
  const Batch first = OrDie(shim->Next(stream.get()));
  {
    Capture capture(stream.get());
    capture.Add(memory.data(), 64);
    const absl::Status refused = shim->Next(stream.get()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), HasSubstr("capturing a CUDA graph"));
    EXPECT_TRUE(absl::IsFailedPrecondition(
        first.entry()->Digest(stream.get()).status()));
    EXPECT_EQ(capture.End(), cudaSuccess);
  }
  EXPECT_EQ(DigestOn(first, stream), want[0]);
  for (size_t i = 1; i < want.size(); ++i) {
    EXPECT_EQ(DigestOn(OrDie(shim->Next(stream.get())), stream), want[i]);
  }
}

// A capture that the trainer's own call has broken: the shim notes nothing.
TEST(GraphCaptureGpuTest, AFailedCaptureOfTheTrainersHasNoConsequences) {
  const std::vector<std::string> want = OnHost();
  const CudaStream stream = OrDie(CudaStream::Create());
  const auto shim = MakeShim();
  for (size_t i = 0; i < want.size(); ++i) {
    Batch batch = OrDie(shim->Next(stream.get()));
    EXPECT_EQ(DigestOn(batch, stream), want[i]);
    Capture capture(stream.get());
    EXPECT_NE(cudaStreamSynchronize(stream.get()), cudaSuccess);
    cudaGetLastError();
    batch.Reset();
    EXPECT_TRUE(absl::IsFailedPrecondition(shim->Next(stream.get()).status()));
    EXPECT_NE(capture.End(), cudaSuccess);
  }
  EXPECT_TRUE(absl::IsOutOfRange(shim->Next(stream.get()).status()));
}

}  // namespace
}  // namespace ballast
