#include "trainer_shim/ballast_rank/cuda_backend.h"

#include <cuda_runtime_api.h>

#include <barrier>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/loader_client.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/schedule/module.h"
#include "trainer_shim/ballast_rank/world.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/cuda/nccl_communicator.h"

namespace ballast {
namespace {

constexpr absl::Duration kMeeting = absl::Minutes(5);

// How and where one rank runs.
struct Place {
  uint32_t rank = 0;  // number among the roles
  v1::Role role;
  int device = 0;
  uint32_t dp = 1;
  bool nccl = false;  // exchanges with the others over NCCL
  std::unique_ptr<Communicator> communicator;
};

absl::StatusOr<std::unique_ptr<CudaTrainerShim>> MakeShim(
    const WorldOptions& options, const v1::Fingerprint& fingerprint,
    const MakeClient& make_client, Place* place) {
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(place->device), "choosing the device"));
  if (place->nccl) {
    const auto servers = MakeClients(options.servers, make_client);
    BALLAST_ASSIGN_OR_RETURN(
        place->communicator,
        MeetNcclCommunicator(
            MeetingServer(servers),
            absl::StrCat("ballast-rank/", ModuleName(place->role.module()), "/",
                         options.place.tp_rank, ".", options.place.pp_rank, ".",
                         options.place.cp_rank),
            place->role.dp_rank(), place->dp, kMeeting, {}, options.run));
  }
  CudaTrainerShim::Options shim;
  shim.source.role = place->role;
  shim.source.place = options.place;
  shim.source.start_step = options.start_step;
  shim.source.steps = options.steps;
  shim.source.fingerprint = fingerprint;
  shim.source.checkpoint = options.checkpoint;
  shim.source.max_bytes = options.max_bytes;
  shim.source.spread = options.spread;
  shim.source.failover = options.failover;
  shim.source.clock = options.clock;
  shim.communicator = std::move(place->communicator);
  shim.device = place->device;
  shim.pixel_type = PixelType::kFloat32;  // as the host backend
  return CudaTrainerShim::Create(std::move(shim),
                                 MakeClients(options.servers, make_client));
}

// One rank of each module, in the order of modules, as in one process of a
// trainer. They share a thread and a GPU, so that exchanges come in one order.
using Process = std::vector<Place*>;
using Shims = std::vector<std::unique_ptr<CudaTrainerShim>>;

absl::StatusOr<Shims> MakeShims(const WorldOptions& options,
                                const v1::Fingerprint& fingerprint,
                                const MakeClient& make_client,
                                const Process& process) {
  Shims shims;
  for (Place* place : process) {
    BALLAST_ASSIGN_OR_RETURN(
        shims.emplace_back(),
        MakeShim(options, fingerprint, make_client, place));
  }
  return shims;
}

// Takes a micro-batch of each shim in turn, until all their steps are done.
absl::Status Drain(const Process& process, const Shims& shims,
                   const WorldOptions& options, const OnBatch& on_batch) {
  BALLAST_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  BALLAST_ASSIGN_OR_RETURN(const Event packed, Event::Create());
  size_t done = 0;
  while (done < shims.size()) {
    done = 0;
    for (size_t i = 0; i < shims.size(); ++i) {
      const absl::Time start = options.clock->Now();
      const absl::StatusOr<BatchRef<DeviceBatch>> batch =
          shims[i]->Next(stream.get());
      if (absl::IsOutOfRange(batch.status())) {
        ++done;
        continue;
      }
      BALLAST_RETURN_IF_ERROR(batch.status());
      BALLAST_RETURN_IF_ERROR(packed.Record(stream.get()));
      BALLAST_RETURN_IF_ERROR(packed.Wait());
      const absl::Duration next = options.clock->Now() - start;
      PackedBatch host = WithoutTensors(**batch);
      if (options.tensors) {
        BALLAST_ASSIGN_OR_RETURN(host, CopyToHost(**batch, stream.get()));
      }
      on_batch({process[i]->rank, &host, (*batch)->schedule.get(), next,
                shims[i]->decoded()});
    }
  }
  return absl::OkStatus();
}

// The place of each role.
absl::StatusOr<std::vector<Place>> GetPlaces(const v1::Job& job,
                                             const std::vector<v1::Role>& roles,
                                             bool all) {
  int devices = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceCount(&devices), "counting GPUs"));
  if (devices == 0) return absl::FailedPreconditionError("there is no GPU");
  std::map<v1::Module, std::vector<std::unique_ptr<Communicator>>> here;
  std::vector<Place> places;
  for (const v1::Role& role : roles) {
    Place& place = places.emplace_back();
    place.rank = places.size() - 1;
    place.role = role;
    for (const v1::Job::ModuleSize& module : job.modules()) {
      if (module.module() == role.module()) place.dp = module.dp();
    }
    place.device = role.dp_rank() % devices;
    BALLAST_ASSIGN_OR_RETURN(const DeliveryRule delivery,
                             GetRule(job, role.module()));
    if (!delivery.moves() || place.dp == 1) continue;
    place.nccl = !all || place.dp <= static_cast<uint32_t>(devices);
    if (place.nccl) continue;
    place.device = 0;
    auto& group = here[role.module()];
    if (group.empty()) {
      group = InProcessDeviceGroup(place.dp);
      LogInfo(ModuleName(role.module()), " has ", place.dp,
              " ranks and the machine ", devices,
              " GPUs: they exchange by copies on GPU 0");
    }
    place.communicator = std::move(group[role.dp_rank()]);
  }
  return places;
}

}  // namespace

absl::Status RunCudaWorld(const v1::AttachResponse& attached,
                          const std::vector<v1::Role>& roles,
                          const WorldOptions& options,
                          const MakeClient& make_client,
                          const OnBatch& on_batch) {
  if (options.report_timings) {
    return absl::UnimplementedError(
        "--report: packing time is reported as training time, and batches on a "
        "GPU are handed out before they are packed; use --backend host");
  }
  BALLAST_ASSIGN_OR_RETURN(
      std::vector<Place> places,
      GetPlaces(attached.job(), roles, !options.role.has_value()));
  std::map<uint32_t, Process> processes;
  for (Place& place : places) {
    processes[place.role.dp_rank()].push_back(&place);
  }
  Failure failure(processes.size());
  // All shims of a process must be created before the first Next.
  std::barrier<> made(processes.size());
  std::vector<std::thread> threads;
  for (const auto& entry : processes) {
    const size_t number = threads.size();
    const auto run = [&, number, process = entry.second] {
      const auto shims =
          MakeShims(options, attached.fingerprint(), make_client, process);
      if (!shims.ok()) failure.Set(shims.status());
      made.arrive_and_wait();
      if (!shims.ok()) return;
      failure.Enter(number, [&shims] {
        for (const auto& shim : *shims) shim->Cancel();
      });
      const absl::Status end = Drain(process, *shims, options, on_batch);
      failure.Leave(number);
      if (!end.ok()) failure.Set(end);
    };
    absl::StatusOr<std::thread> thread =
        StartThread(absl::StrCat("act as rank ", entry.first), run);
    if (!thread.ok()) {
      failure.Set(thread.status());
      for (size_t i = number; i < processes.size(); ++i) made.arrive_and_drop();
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) thread.join();
  return failure.first();
}

const char* CudaSupport() { return "with CUDA"; }

}  // namespace ballast
