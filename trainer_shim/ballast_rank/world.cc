#include "trainer_shim/ballast_rank/world.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "trainer_shim/ballast_rank/failure.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"
#include "trainer_shim/job_shape.h"
#include "trainer_shim/role_fields.h"

namespace ballast {
namespace {

// Calls Next until the end. OK at the end of the steps.
absl::Status Drain(uint32_t rank, TrainerShim* shim,
                   const WorldOptions& options, const OnBatch& on_batch) {
  while (true) {
    const absl::Time start = options.clock->Now();
    const absl::StatusOr<BatchRef<PackedBatch>> batch = shim->Next();
    if (absl::IsOutOfRange(batch.status())) return absl::OkStatus();
    if (!batch.ok()) return batch.status();
    on_batch({rank, &**batch, shim->schedule(), options.clock->Now() - start});
    if (!options.report_timings) continue;
    const absl::Status told =
        shim->ReportTiming((*batch)->step, (*batch)->micro_batch,
                           absl::ToDoubleMilliseconds((*batch)->pack_time));
    // INVALID_ARGUMENT is this program's fault; any other error is the
    // servers'.
    if (absl::IsInvalidArgument(told)) {
      return Annotate(told, "a timing was not taken");
    }
    if (!told.ok() && options.lost_reports != nullptr) {
      options.lost_reports->Add(told);
    }
  }
}

void RunRank(uint32_t rank, TrainerShim::Options shim_options,
             const WorldOptions& options, const MakeClient& make_client,
             const OnBatch& on_batch, Failure* failure) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : options.servers) {
    clients.push_back(make_client(address));
  }
  absl::StatusOr<std::unique_ptr<TrainerShim>> shim =
      TrainerShim::Create(std::move(shim_options), std::move(clients));
  if (!shim.ok()) return failure->Set(shim.status());
  failure->Enter(rank, [raw = shim->get()] { raw->Cancel(); });
  const absl::Status end = Drain(rank, shim->get(), options, on_batch);
  failure->Leave(rank);
  if (!end.ok()) failure->Set(end);
}

}  // namespace

absl::StatusOr<std::vector<v1::Role>> RolesOf(const v1::Job& job,
                                              const WorldOptions& options) {
  if (options.role) {
    BALLAST_ASSIGN_OR_RETURN(const JobShape shape,
                             ShapeOf(job, *options.role, options.place));
    if (shape.exchanges() && shape.fields.any() &&
        !options.reaches_other_processes) {
      return absl::FailedPreconditionError(absl::StrCat(
          ModuleName(options.role->module()), " has ", shape.dp,
          " ranks that exchange samples, and the host backend does not reach "
          "other processes: run them in one (--world all), or set "
          "balance.delivery to direct or off"));
    }
    return std::vector<v1::Role>{*options.role};
  }
  std::vector<v1::Role> roles;
  absl::Status nowhere = absl::InvalidArgumentError("the job has no module");
  for (const v1::Job::ModuleSize& module : job.modules()) {
    // The modules' layouts differ: one may lack the place.
    const absl::Status there = CheckPlace(options.place, LayoutOf(module));
    if (!there.ok()) {
      nowhere = Annotate(there, ModuleName(module.module()));
      continue;
    }
    for (uint32_t rank = 0; rank < module.dp(); ++rank) {
      v1::Role& role = roles.emplace_back();
      role.set_module(module.module());
      role.set_dp_rank(rank);
      BALLAST_RETURN_IF_ERROR(ShapeOf(job, role, options.place).status());
    }
  }
  if (roles.empty()) return nowhere;
  return roles;
}

absl::Status RunWorld(const v1::Job& job, const v1::Fingerprint& fingerprint,
                      const std::vector<v1::Role>& roles,
                      const WorldOptions& options,
                      const MakeClient& make_client, const OnBatch& on_batch) {
  std::map<v1::Module, std::vector<std::unique_ptr<Communicator>>> groups;
  for (const v1::Job::ModuleSize& module : job.modules()) {
    groups[module.module()] = InProcessGroup(module.dp());
  }
  Failure failure(roles.size());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < roles.size(); ++rank) {
    TrainerShim::Options shim;
    shim.source.role = roles[rank];
    shim.source.place = options.place;
    shim.communicator = std::move(
        groups[shim.source.role.module()][shim.source.role.dp_rank()]);
    shim.source.start_step = options.start_step;
    shim.source.steps = options.steps;
    shim.source.checkpoint = options.checkpoint;
    shim.source.fingerprint = fingerprint;
    shim.source.max_bytes = options.max_bytes;
    shim.source.failover = options.failover;
    shim.source.clock = options.clock;
    threads.emplace_back([&, rank, shim = std::move(shim)]() mutable {
      RunRank(rank, std::move(shim), options, make_client, on_batch, &failure);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failure.first();
}

}  // namespace ballast
