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
};

absl::Status RunRank(CudaTrainerShim::Options options, std::barrier<>* ready,
                     Collected* collected) {
  const auto shim = CudaTrainerShim::Create(std::move(options));
  const absl::StatusOr<Stream> made = Stream::Create();
  ready->arrive_and_wait();
  BALLAST_RETURN_IF_ERROR(shim.status());
  BALLAST_RETURN_IF_ERROR(made.status());
  const Stream& stream = *made;
  while (true) {
    const absl::StatusOr<const DeviceBatch*> batch =
        (*shim)->Next(stream.get());
    if (absl::IsOutOfRange(batch.status())) return absl::OkStatus();
    BALLAST_RETURN_IF_ERROR(batch.status());
    BALLAST_ASSIGN_OR_RETURN(PackedBatch host,
                             CopyToHost(**batch, stream.get()));
    MutexLock lock(&collected->mutex);
    collected->batches[{host.step, host.micro_batch, host.role.module(),
                        host.role.dp_rank()}] = std::move(host);
  }
}

}  // namespace

int DeviceCount() {
  int count = 0;
  OrDie(cudaGetDeviceCount(&count), "counting devices");
  return count;
}

std::vector<std::unique_ptr<DeviceCommunicator>> MakeGroup(Exchange exchange,
                                                           uint32_t size) {
  if (exchange == Exchange::kInProcess) return InProcessDeviceGroup(size);
  const std::string id = OrDie(MakeNcclId());
  std::vector<std::unique_ptr<DeviceCommunicator>> ends(size);
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
  const bool exchanges = attached.job().delivery() == v1::DELIVERY_EXCHANGE;
  Collected collected;
  uint32_t ranks = 0;
  for (const v1::Job::ModuleSize& module : attached.job().modules()) {
    ranks += module.dp();
  }
  std::barrier<> ready(ranks);
  std::vector<std::thread> threads;
  for (const v1::Job::ModuleSize& module : attached.job().modules()) {
    std::vector<std::unique_ptr<DeviceCommunicator>> group(module.dp());
    if (exchanges && module.dp() > 1) {
      group = MakeGroup(options.exchange, module.dp());
    }
    for (uint32_t rank = 0; rank < module.dp(); ++rank) {
      CudaTrainerShim::Options shim;
      shim.servers = servers;
      shim.source.role.set_module(module.module());
      shim.source.role.set_dp_rank(rank);
      shim.source.start_step = options.step;
      shim.source.steps = options.steps;
      shim.communicator = std::move(group[rank]);
      shim.device = options.exchange == Exchange::kNccl ? rank : 0;
      shim.pixel_type = options.pixel_type;
      shim.overlap = options.overlap;
      threads.emplace_back([&, shim = std::move(shim)]() mutable {
        const absl::Status status =
            RunRank(std::move(shim), &ready, &collected);
        MutexLock lock(&collected.mutex);
        if (collected.failure.ok()) collected.failure = status;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  MutexLock lock(&collected.mutex);
  BALLAST_RETURN_IF_ERROR(collected.failure);
  return std::move(collected.batches);
}

}  // namespace ballast
