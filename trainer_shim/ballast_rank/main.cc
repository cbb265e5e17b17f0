// A stand-in for trainer ranks: pulls, exchanges and packs like a trainer's
// process, without training.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/attach_all.h"
#include "client/connection_flags.h"
#include "client/loader_client.h"
#include "client/spread_stream.h"
#include "common/channel_security.h"
#include "common/command_line.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/module.h"
#include "proto/transport.h"
#include "trainer_shim/ballast_rank/cuda_backend.h"
#include "trainer_shim/ballast_rank/report.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {
namespace {

constexpr char kExamples[] =
    "  ballast-rank --server unix:/run/ballast/a.sock --steps 10\n"
    "      every rank of the job in this process; a table at the end\n"
    "  ballast-rank --server 10.0.0.1:7070,10.0.0.2:7070 \\\n"
    "      --steps 2 --step 100 --json\n"
    "      steps 100 and 101, one JSON object a batch\n"
    "  ballast-rank --server 127.0.0.1:7070 --steps 4 \\\n"
    "      --module language --dp-rank 0\n"
    "      one rank; where samples are exchanged, with the processes of the\n"
    "      other ranks, on this machine or others\n"
    "  ballast-rank --server 10.0.0.1:7070 --steps 4 --backend cuda \\\n"
    "      --module vision --dp-rank 3\n"
    "      one rank on its GPU\n"
    "  ballast-rank --server 127.0.0.1:7070 --steps 4 --world all --json \\\n"
    "      --pp-rank 1 --cp-rank 3\n"
    "      all data-parallel ranks of that pipeline stage and context rank";

struct Arguments {
  WorldOptions world;
  SecurityFiles security;
  std::string backend = "host";
  std::string ranks;  // "all", "one" or empty
  std::string module;
  uint32_t dp_rank = 0;
  bool json = false;
  std::string data_fingerprint;
  std::string history;
  uint32_t streams = 1;
};

absl::Status Run(const Arguments& arguments) {
  WorldOptions options = arguments.world;
  const bool cuda = arguments.backend == "cuda";
  if (arguments.ranks == "one" && arguments.module.empty()) {
    return absl::InvalidArgumentError(
        "--world one needs --module and --dp-rank, which name the rank");
  }
  if (arguments.ranks == "all" && !arguments.module.empty()) {
    return absl::InvalidArgumentError(
        "--module and --dp-rank name one rank; --world all runs every rank");
  }
  v1::Role attach_as;  // empty: attaches as a tool until the job is known
  if (!arguments.module.empty()) {
    attach_as.set_module(*ParseModule(arguments.module));
    attach_as.set_dp_rank(arguments.dp_rank);
    options.role = attach_as;
  }
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(arguments.security));
  const auto connect = [&](const std::string& address) {
    return LoaderClient::CreateSecure(address, security, arguments.streams);
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  std::vector<LoaderClient*> servers;
  for (const std::string& address : options.servers) {
    clients.push_back(connect(address));
    servers.push_back(clients.back().get());
  }
  BALLAST_ASSIGN_OR_RETURN(
      const v1::AttachResponse attached,
      AttachAll(servers, attach_as, {}, options.failover.start_patience,
                options.clock));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<v1::Role> roles,
                           GetRoles(attached.job(), options));
  options.checkpoint.set_data_hash(arguments.data_fingerprint);
  const auto steps =
      StepsWithData(attached.job(), options.start_step, options.steps);
  if (!steps.ok() || *steps != options.steps) {
    LogInfo(DataEnd(attached.job()).message());
  }

  // Digests need the tensors.
  options.tensors = arguments.json || !arguments.history.empty();
  std::unique_ptr<History> history;
  if (!arguments.history.empty()) {
    BALLAST_ASSIGN_OR_RETURN(history,
                             History::Open(arguments.history, options.run));
  }
  Failure unwritten(/*ranks=*/0);
  LostReports lost;
  options.lost_reports = &lost;
  Report report(roles, options.clock);
  InterleavedLines lines(roles.size(), &std::cout);
  const absl::Time start = options.clock->Now();
  const auto on_batch = [&](const RankBatch& got) {
    if (history != nullptr) unwritten.Set(history->Add(*got.batch, got.next));
    if (arguments.json) {
      lines.Add(got.rank, BatchLine(*got.batch, got.next));
    } else {
      report.Add(got);
    }
  };
  BALLAST_RETURN_IF_ERROR(
      cuda ? RunCudaWorld(attached, roles, options, connect, on_batch)
           : RunWorld(attached.job(), attached.fingerprint(), roles, options,
                      connect, on_batch));
  BALLAST_RETURN_IF_ERROR(unwritten.first());
  if (lost.count() > 0) LogWarning(lost.Warning());
  if (!arguments.json) {
    const std::string& server = options.servers[0];
    std::cout << report.ToString(options.clock->Now() - start)
              << "The schedule of any step can be queried at " << server
              << ":\n  ballastctl --server " << server << " schedule --step "
              << options.start_step << "\n";
  }
  std::cout.flush();
  if (!std::cout) return absl::UnavailableError("stdout cannot be written");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  SendLibraryLogsToLog();
  Arguments arguments;
  WorldOptions& world = arguments.world;
  CommandLine line("ballast-rank",
                   "Replaces trainer ranks: pulls, exchanges and packs "
                   "batches, without\ntraining.",
                   kExamples);
  line.SetBuildOptions(CudaSupport());
  line.SetAction([&arguments] { return Run(arguments); });
  Command* app = line.program();
  app->AddTexts("--server", &world.servers,
                "loader server, unix:/path or host:port; several with commas "
                "between, or once for each: when one dies, hangs or drains "
                "the next goes on")
      .FromEnvironment("BALLAST_SERVER")
      .Required()
      .SplitAtCommas()
      .TypeName("ADDRESS[,ADDRESS...]");
  app->AddWholeNumber("--steps", &world.steps, "number of steps", 1,
                      uint64_t{1} << 40)
      .Required();
  app->AddWholeNumber("--step", &world.start_step, "first step").ShowDefault();
  app->AddText("--backend", &arguments.backend, "where batches are packed")
      .OneOf({"host", "cuda"})
      .ShowDefault();
  app->AddText("--world", &arguments.ranks,
               "ranks of this process. all: every data-parallel rank of every "
               "module, at the place that --tp-rank, --pp-rank and --cp-rank "
               "say, in the modules that have it; so it is without --module. "
               "Other places are other runs: their batches differ in tensors "
               "and tokens, not in samples. one: the rank that --module and "
               "--dp-rank name, which exchanges with the others' processes, "
               "over Gloo with the host backend and over NCCL with cuda")
      .OneOf({"all", "one"});
  const Option module = app->AddText("--module", &arguments.module,
                                     "the one rank's module, with --dp-rank")
                            .OneOf(ModuleNames());
  const Option dp_rank =
      app->AddWholeNumber("--dp-rank", &arguments.dp_rank,
                          "the one rank to run, with --module")
          .Needs(module);
  module.Needs(dp_rank);
  app->AddWholeNumber("--tp-rank", &world.place.tp_rank,
                      "tensor rank in the module; all of them receive the same")
      .ShowDefault();
  app->AddWholeNumber(
         "--pp-rank", &world.place.pp_rank,
         "pipeline stage: what is not received there is not packed")
      .ShowDefault();
  app->AddWholeNumber("--cp-rank", &world.place.cp_rank,
                      "context rank: packs its slice of each sample's tokens")
      .ShowDefault();
  app->AddText("--run", &world.run,
               "name of this start of the job, the same for all its ranks: "
               "ranks of an earlier start that still run then never join its "
               "groups")
      .FromEnvironment("BALLAST_RUN_ID");
  app->AddText("--exchange-interface", &world.interface,
               "network interface, or this machine's address, at which the "
               "host backend exchanges with other processes; without it, the "
               "one that leads to the first server on another machine, or "
               "127.0.0.1")
      .FromEnvironment("BALLAST_EXCHANGE_INTERFACE");
  app->AddFlag("--report", &world.report_timings,
               "report what packing each batch took, for `ballastctl "
               "fit-cost`; those that no server takes within a second are "
               "lost, and counted in a warning at the end");
  app->AddText("--history", &arguments.history,
               "appends what each rank got to this file: one JSON object a "
               "batch, with a digest of each sample's tensors")
      .TypeName("FILE");
  app->AddFlag("--json", &arguments.json,
               "one JSON object a batch instead of the table");
  app->AddWholeNumber(
         "--max-bytes", &world.max_bytes,
         "bytes of blocks that a rank holds or awaits; one block may "
         "always be",
         1)
      .ShowDefault();
  app->AddWholeNumber("--streams", &arguments.streams,
                      "connections over which a rank's blocks come "
                      "where they are not in shared memory",
                      1, kMaxLanes)
      .ShowDefault();
  app->AddWholeNumber("--spread", &world.spread,
                      "servers that make a rank's blocks at once, each its "
                      "share: at most this many of those at --server, where a "
                      "name is a server at each address that it resolves to. "
                      "0: one makes all, and the others are for its failure",
                      0, kMaxSpread)
      .ShowDefault();
  app->AddText("--data-fingerprint", &arguments.data_fingerprint,
               "of the checkpoint that --step comes from: refuses servers of "
               "other data; dp sizes and delivery may differ")
      .TypeName("HEX");
  AddFailoverFlags(app, &world.failover);
  AddSecurityFlags(app, &arguments.security);
  return line.Run(argc, argv);
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) { return ballast::Main(argc, argv); }
