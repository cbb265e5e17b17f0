// Held batches in device memory: unchanged, released while slow work still
// reads them, and valid after their shim.

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
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Batch = BatchRef<DeviceBatch>;

constexpr uint64_t kSteps = 8;

std::vector<std::unique_ptr<LoaderClient>> Clients() {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  return clients;
}

std::unique_ptr<CudaTrainerShim> MakeShim(v1::Module module,
                                          uint32_t max_batches_held,
                                          bool overlap) {
  CudaTrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = kSteps;
  options.max_batches_held = max_batches_held;
  options.pixel_type = PixelType::kFloat32;
  options.overlap = overlap;
  return OrDie(CudaTrainerShim::Create(std::move(options), Clients()));
}

// All batches as the host backend makes them.
std::vector<PackedBatch> OnHost(v1::Module module) {
  TrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = kSteps;
  const auto shim = OrDie(TrainerShim::Create(std::move(options), Clients()));
  std::vector<PackedBatch> batches;
  while (true) {
    const auto batch = shim->Next();
    if (!batch.ok()) return batches;
    batches.push_back(**batch);
  }
}

std::string DigestOn(const Batch& batch, const CudaStream& stream) {
  return ComputeDigest(OrDie(CopyToHost(*batch, stream.get())));
}

// Blocks a stream's work until Open, like a kernel that spins.
class Gate {
 public:
  ~Gate() { Open(); }
  void Close(cudaStream_t stream) {
    OrDie(cudaLaunchHostFunc(
              stream,
              [](void* open) {
                static_cast<std::atomic<bool>*>(open)->wait(false);
              },
              &open_),
          "closing the gate");
  }
  void Open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_ = false;
};

class BatchLifetimeGpuTest : public ::testing::TestWithParam<bool> {};

TEST_P(BatchLifetimeGpuTest, HeldBatchesStayUnchanged) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const std::vector<PackedBatch> want = OnHost(module);
    ASSERT_EQ(want.size(), 2 * kSteps);
    for (const size_t held : {1, 2, 4, 8}) {
      const CudaStream stream = OrDie(CudaStream::Create());
      const auto shim = MakeShim(module, held, GetParam());
      std::vector<Batch> last;  // the oldest first
      for (size_t i = 0; i < want.size(); ++i) {
        if (last.size() == held) last.erase(last.begin());
        last.push_back(OrDie(shim->Next(stream.get())));
        for (size_t k = 0; k < last.size(); ++k) {
          EXPECT_EQ(DigestOn(last[k], stream),
                    ComputeDigest(want[i + 1 - last.size() + k]));
        }
      }
      EXPECT_LE(shim->pool_entries(), held + GetParam());
      const absl::Status full = shim->Next(stream.get()).status();
      EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(full.message(), HasSubstr("step 7 micro-batch 1"));
      last.clear();
      EXPECT_EQ(shim->Next(stream.get()).status().code(),
                absl::StatusCode::kOutOfRange);
    }
  }
}

// Batches are released as soon as the work that reads them has been enqueued on
// a blocked stream. Their memory is not reused for later batches until that
// work is done.
TEST_P(BatchLifetimeGpuTest, SlowReadersSeeTheirBatch) {
  for (const bool two_streams : {false, true}) {
    const std::vector<PackedBatch> want = OnHost(v1::MODULE_LANGUAGE);
    const CudaStream stream = OrDie(CudaStream::Create());
    const CudaStream other = OrDie(CudaStream::Create());
    const Event packed = OrDie(Event::Create());
    std::vector<PinnedBuffer> copies;
    Gate gate;
    const auto shim = MakeShim(v1::MODULE_LANGUAGE, 4, GetParam());
    const cudaStream_t reader = two_streams ? other.get() : stream.get();
    for (size_t i = 0; i < want.size(); ++i) {
      Batch batch = OrDie(shim->Next(stream.get()));
      if (two_streams) {
        OrDie(packed.Record(stream.get()));
        OrDie(StreamWait(reader, packed.get()));
        OrDie(batch.RecordStream(reader));
      }
      if (i == 0) gate.Close(reader);
      const uint64_t bytes =
          want[i].Get<int64_t>("input_ids").size() * sizeof(int64_t);
      copies.push_back(OrDie(PinnedBuffer::Create(bytes)));
      OrDie(cudaMemcpyAsync(copies.back().data(),
                            batch->Get<int64_t>("input_ids"), bytes,
                            cudaMemcpyDeviceToHost, reader),
            "copy of the ids");
      batch.Reset();
      // Later ones would wait for the gate in their Next.
      if (i == 2) gate.Open();
    }
    OrDie(cudaStreamSynchronize(reader), "waiting for the reader");
    for (size_t i = 0; i < want.size(); ++i) {
      const auto* ids = reinterpret_cast<const int64_t*>(copies[i].data());
      const auto wanted = want[i].Get<int64_t>("input_ids");
      EXPECT_EQ(absl::MakeConstSpan(ids, wanted.size()), wanted) << i;
    }
  }
}

TEST_P(BatchLifetimeGpuTest, OutlivesTheShimAndIsReleasedElsewhere) {
  const std::vector<PackedBatch> want = OnHost(v1::MODULE_VISION);
  const CudaStream stream = OrDie(CudaStream::Create());
  for (int round = 0; round < 3; ++round) {
    std::vector<Batch> held;
    {
      const auto shim = MakeShim(v1::MODULE_VISION, 4, GetParam());
      for (int i = 0; i < 3; ++i) {
        held.push_back(OrDie(shim->Next(stream.get())));
      }
    }
    for (size_t i = 0; i < held.size(); ++i) {
      EXPECT_EQ(DigestOn(held[i], stream), ComputeDigest(want[i]));
    }
    std::thread([held = std::move(held)] {}).join();
  }
}

// A release after the shim never waits, even if the device is busy.
TEST_P(BatchLifetimeGpuTest, AReleaseAfterTheShimDoesNotWait) {
  const CudaStream stream = OrDie(CudaStream::Create());
  Gate gate;
  Batch batch;
  {
    const auto shim = MakeShim(v1::MODULE_VISION, 4, GetParam());
    batch = OrDie(shim->Next(stream.get()));
  }
  gate.Close(stream.get());
  batch.Reset();  // would not come back
  gate.Open();
  OrDie(stream.Synchronize());
}

INSTANTIATE_TEST_SUITE_P(Overlap, BatchLifetimeGpuTest, ::testing::Bool());

// A release in another thread would not wait for the work of this one.
TEST(BatchStreamGpuTest, AStreamOfEachThreadIsRefused) {
  const CudaStream stream = OrDie(CudaStream::Create());
  const auto shim = MakeShim(v1::MODULE_LANGUAGE, 4, /*overlap=*/true);
  const Batch batch = OrDie(shim->Next(stream.get()));
  EXPECT_TRUE(absl::IsInvalidArgument(batch.RecordStream(cudaStreamPerThread)));
  EXPECT_TRUE(shim->Next(stream.get()).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(shim->Next(cudaStreamPerThread).status()));
}

}  // namespace
}  // namespace ballast
