#include "trainer_shim/ballast_rank/world.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "proto/schedule/module.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/gloo_communicator.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

constexpr absl::Duration kMeeting = absl::Minutes(5);

// Rendezvous with the processes of the other ranks of the module; null if they
// exchange nothing.
absl::StatusOr<std::unique_ptr<Communicator>> MeetOthers(
    const v1::Job& job, const v1::Role& role, const WorldOptions& options,
    const MakeClient& make_client) {
  BALLAST_ASSIGN_OR_RETURN(const JobShape shape,
                           GetShape(job, role, options.place));
  if (!shape.exchanges() || !shape.fields.any()) return nullptr;
  BALLAST_ASSIGN_OR_RETURN(std::string address,
                           ExchangeAddress(options.servers, options.interface));
  const auto servers = MakeClients(options.servers, make_client);
  return MeetGlooCommunicator(
      MeetingServer(servers),
      absl::StrCat("ballast-rank/host/", ModuleName(role.module()), "/",
                   options.place.tp_rank, ".", options.place.pp_rank, ".",
                   options.place.cp_rank),
      role.dp_rank(), shape.dp, kMeeting,
      GlooOptions::For(options.failover, std::move(address)), options.run);
}

// Calls Next until the end. OK at the end of the steps.
absl::Status Drain(uint32_t rank, TrainerShim* shim,
                   const WorldOptions& options, const OnBatch& on_batch) {
  while (true) {
    const absl::Time start = options.clock->Now();
    const absl::StatusOr<BatchRef<PackedBatch>> batch = shim->Next();
    if (absl::IsOutOfRange(batch.status())) return absl::OkStatus();
    if (!batch.ok()) return batch.status();
    on_batch({rank, &**batch, shim->schedule(), options.clock->Now() - start,
              shim->decoded()});
    if (!options.report_timings) continue;
    const absl::Status told =
        shim->ReportTiming((*batch)->step, (*batch)->micro_batch,
                           absl::ToDoubleMilliseconds((*batch)->pack_time));
    // INVALID_ARGUMENT is this program's fault; any other error is the servers'
    // fault.
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
  absl::StatusOr<std::unique_ptr<TrainerShim>> shim = TrainerShim::Create(
      std::move(shim_options), MakeClients(options.servers, make_client));
  if (!shim.ok()) return failure->Set(shim.status());
  failure->Enter(rank, [raw = shim->get()] { raw->Cancel(); });
  const absl::Status end = Drain(rank, shim->get(), options, on_batch);
  failure->Leave(rank);
  if (!end.ok()) failure->Set(end);
}

}  // namespace

std::vector<std::unique_ptr<LoaderClient>> MakeClients(
    const std::vector<std::string>& servers, const MakeClient& make_client) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& server : servers) {
    clients.push_back(make_client(server));
  }
  return clients;
}

absl::StatusOr<std::vector<v1::Role>> GetRoles(const v1::Job& job,
                                               const WorldOptions& options) {
  if (options.role) {
    BALLAST_RETURN_IF_ERROR(
        GetShape(job, *options.role, options.place).status());
    return std::vector<v1::Role>{*options.role};
  }
  std::vector<v1::Role> roles;
  absl::Status nowhere = absl::InvalidArgumentError("the job has no module");
  for (const v1::Job::ModuleSize& module : job.modules()) {
    // The modules' layouts differ: a module may lack the place.
    const absl::Status there = CheckPlace(options.place, GetLayout(module));
    if (!there.ok()) {
      nowhere = Annotate(there, ModuleName(module.module()));
      continue;
    }
    for (uint32_t rank = 0; rank < module.dp(); ++rank) {
      v1::Role& role = roles.emplace_back();
      role.set_module(module.module());
      role.set_dp_rank(rank);
      BALLAST_RETURN_IF_ERROR(GetShape(job, role, options.place).status());
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
  if (options.role) {
    BALLAST_ASSIGN_OR_RETURN(
        groups[options.role->module()][options.role->dp_rank()],
        MeetOthers(job, *options.role, options, make_client));
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
    shim.source.spread = options.spread;
    shim.source.failover = options.failover;
    shim.source.clock = options.clock;
    absl::StatusOr<std::thread> thread =
        StartThread(absl::StrCat("act as rank ", rank),
                    [&, rank, shim = std::move(shim)]() mutable {
                      RunRank(rank, std::move(shim), options, make_client,
                              on_batch, &failure);
                    });
    if (!thread.ok()) {
      failure.Set(thread.status());
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) thread.join();
  return failure.first();
}

}  // namespace ballast
