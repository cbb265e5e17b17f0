#include "tests/gpu/cuda_world.h"

#include <barrier>
#include <thread>
#include <utility>

#include "client/loader_client.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/cuda/nccl_communicator.h"

namespace ballast {
namespace {

struct Collected {
  Mutex mutex;
  TestCluster::Batches batches ABSL_GUARDED_BY(mutex);
  absl::Status failure ABSL_GUARDED_BY(mutex);
  JpegEngineCounts decoded ABSL_GUARDED_BY(mutex);
};

void AddDecoded(const JpegEngineCounts& counts, Collected* collected) {
  MutexLock lock(&collected->mutex);
  JpegEngineCounts& sum = collected->decoded;
  sum.by_hardware += counts.by_hardware;
  sum.by_host += counts.by_host;
  sum.bytes += counts.bytes;
  sum.busy += counts.busy;
}

absl::StatusOr<CudaStream> MakeStream() {
  int device = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDevice(&device), "asking for the device"));
  const CurrentDevice current(device);
  return CudaStream::Create();
}

// Runs the shims of one process of a trainer: one rank of each module, on one
// GPU.
absl::Status RunProcess(std::vector<CudaTrainerShim::Options> options,
                        std::barrier<>* ready, Collected* collected) {
  std::vector<std::unique_ptr<CudaTrainerShim>> shims;
  absl::Status made;
  for (CudaTrainerShim::Options& each : options) {
    auto shim = CudaTrainerShim::Create(std::move(each));
    if (!shim.ok()) {
      made = shim.status();
      break;
    }
    shims.push_back(*std::move(shim));
  }
  const absl::StatusOr<CudaStream> stream = MakeStream();
  ready->arrive_and_wait();
  BALLAST_RETURN_IF_ERROR(made);
  BALLAST_RETURN_IF_ERROR(stream.status());
  while (true) {
    for (const auto& shim : shims) {
      const absl::StatusOr<BatchRef<DeviceBatch>> batch =
          shim->Next(stream->get());
      if (absl::IsOutOfRange(batch.status()) && shim == shims.back()) {
        for (const auto& each : shims) AddDecoded(each->decoded(), collected);
        return absl::OkStatus();
      }
      if (absl::IsOutOfRange(batch.status())) continue;
      BALLAST_RETURN_IF_ERROR(batch.status());
      // The test's own calls, which must not break a capture of the test's.
      const CurrentDevice current((*batch)->memory.device);
      BALLAST_ASSIGN_OR_RETURN(PackedBatch host,
                               CopyToHost(**batch, stream->get()));
      MutexLock lock(&collected->mutex);
      collected->batches[{host.step, host.micro_batch, host.role.module(),
                          host.role.dp_rank()}] = std::move(host);
    }
  }
}

}  // namespace

int DeviceCount() {
  int count = 0;
  OrDie(cudaGetDeviceCount(&count), "counting devices");
  return count;
}

std::vector<std::unique_ptr<Communicator>> MakeGroup(Exchange exchange,
                                                     uint32_t size) {
  if (exchange == Exchange::kInProcess) return InProcessDeviceGroup(size);
  const std::string id = OrDie(MakeNcclId());
  std::vector<std::unique_ptr<Communicator>> ends(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      OrDie(cudaSetDevice(rank), "choosing the device");
      ends[rank] = OrDie(CreateNcclCommunicator(id, rank, size, {}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

absl::StatusOr<TestCluster::Batches> RunCudaRanks(
    const std::vector<std::string>& servers, const CudaWorldOptions& options) {
  const auto client = LoaderClient::Create(servers[0]);
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse attached,
                           client->Attach({}, {}));
  const v1::Delivery delivery = attached.job().delivery();
  const bool exchanges =
      delivery == v1::DELIVERY_EXCHANGE || delivery == v1::DELIVERY_HYBRID;
  Collected collected;
  // Ranks r of all modules share a process.
  std::map<uint32_t, std::vector<CudaTrainerShim::Options>> processes;
  for (const v1::Job::ModuleSize& module : attached.job().modules()) {
    std::vector<std::unique_ptr<Communicator>> group(module.dp());
    if (exchanges && module.dp() > 1) {
      group = MakeGroup(options.exchange, module.dp());
    }
    for (uint32_t rank = 0; rank < module.dp(); ++rank) {
      CudaTrainerShim::Options& shim = processes[rank].emplace_back();
      shim.servers.addresses = servers;
      shim.source.role.set_module(module.module());
      shim.source.role.set_dp_rank(rank);
      shim.source.start_step = options.step;
      shim.source.steps = options.steps;
      shim.communicator = std::move(group[rank]);
      shim.device = options.exchange == Exchange::kNccl ? rank : 0;
      shim.pixel_type = options.pixel_type;
      shim.overlap = options.overlap;
    }
  }
  std::barrier<> ready(processes.size());
  std::vector<std::thread> threads;
  for (auto& [rank, shims] : processes) {
    threads.emplace_back([&, shims = std::move(shims)]() mutable {
      const absl::Status status =
          RunProcess(std::move(shims), &ready, &collected);
      MutexLock lock(&collected.mutex);
      if (collected.failure.ok()) collected.failure = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&collected.mutex);
  BALLAST_RETURN_IF_ERROR(collected.failure);
  if (options.decoded != nullptr) *options.decoded = collected.decoded;
  return std::move(collected.batches);
}

}  // namespace ballast
