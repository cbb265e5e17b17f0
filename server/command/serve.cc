#include "server/command/serve.h"

#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/build_info.h"
#include "common/grpc_log.h"
#include "common/log.h"
#include "common/service_manager.h"
#include "common/status_macros.h"
#include "server/command/termination.h"
#include "server/config/config_loader.h"
#include "server/config/listen_address.h"
#include "server/job/reload.h"
#include "server/service/server.h"

namespace ballast {
namespace {

// How long a block that is being sent may take to end after a signal.
constexpr absl::Duration kDrainTime = absl::Seconds(10);
constexpr absl::Duration kLongWait = absl::Hours(1);
// A signal that comes so soon after another is the same.
constexpr absl::Duration kSameSignal = absl::Milliseconds(100);
// Between looks at the files of security.tls.
constexpr absl::Duration kTlsLook = absl::Minutes(1);

struct Options {
  std::string config;
  std::vector<std::string> listen;
  std::string meeting;
};

LogLevel LogLevelOf(const v1::Serve& serve) {
  switch (serve.log_level()) {
    case v1::Serve::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::Serve::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::Serve::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

absl::StatusOr<LoadedConfig> Load(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config, LoadConfig(options.config));
  if (!options.listen.empty()) {
    config.config.mutable_serve()->mutable_listen()->Assign(
        options.listen.begin(), options.listen.end());
  }
  if (!options.meeting.empty()) {
    const auto address = ParseListenAddress(options.meeting);
    if (!address.ok()) return Annotate(address.status(), "--meeting");
    config.config.mutable_topology()->set_meeting(options.meeting);
  }
  return config;
}

// Workers take memory for the files of a sample and give it back, sample after
// sample. Left alone, glibc gives it back to the kernel, which clears each page
// when it is touched again; so each thread keeps what it has had, a few files.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

// Reads the configuration again and takes over what can be; otherwise says why
// not, and goes on as before.
void Reload(const Options& options, LoaderServer* server, v1::Config* running) {
  NotifyReloading();
  const absl::Status status = [&]() -> absl::Status {
    BALLAST_ASSIGN_OR_RETURN(const LoadedConfig wanted, Load(options));
    BALLAST_RETURN_IF_ERROR(CheckReload(*running, wanted.config));
    BALLAST_RETURN_IF_ERROR(server->Reload(wanted.config));
    SuggestLogLevel(LogLevelOf(wanted.config.serve()));
    *running = wanted.config;
    return absl::OkStatus();
  }();
  if (status.ok()) {
    LogInfo("reloaded ", options.config);
  } else {
    LogError("not reloaded, nothing has changed: ", status.message());
  }
  NotifyServiceManager("READY=1");
}

// Takes over certificates that were changed where they lie, of which nothing
// tells a server: Kubernetes does so. `fault` is what the last look found
// wrong, which is said once.
void RenewTls(LoaderServer* server, std::string* fault) {
  const absl::StatusOr<bool> renewed = server->RenewTls();
  std::string found(renewed.status().message());
  if (!found.empty() && found != *fault) {
    LogError("new connections still go by the certificates before: ", found);
  }
  *fault = std::move(found);
}

absl::Status Serve(const Options& options) {
  KeepFreedMemory();
  SendGrpcLogToLog();
  BlockServeSignals();
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config, Load(options));
  SuggestLogLevel(LogLevelOf(config.config.serve()));
  LogInfo("ballast-server ", ShortVersion(), " starts with ", options.config);
  std::unique_ptr<LoaderServer> server;
  {
    const EndAtOnce guard("starting");
    BALLAST_ASSIGN_OR_RETURN(
        server,
        LoaderServer::Start(config, LoaderServer::Rehearsal::kFirstBlocks));
  }
  const std::string addresses = absl::StrJoin(server->addresses(), " ");
  std::cout << "ready " << addresses << std::endl;
  if (!std::cout) return absl::UnavailableError("cannot write standard output");
  LogInfo("ready at ", addresses);
  NotifyServiceManager(absl::StrCat("READY=1\nSTATUS=serving at ", addresses));

  const std::optional<absl::Duration> watchdog = WatchdogTimeout();
  const absl::Duration patience =
      std::min(watchdog.has_value() ? *watchdog / 2 : kLongWait,
               config.config.security().has_tls() ? kTlsLook : kLongWait);
  std::string tls_fault;
  int signal = 0;
  while (signal == 0) {
    signal = AwaitServeSignal(patience);
    if (signal == SIGHUP) {
      Reload(options, server.get(), &config.config);
      signal = 0;
    } else if (signal == 0) {
      RenewTls(server.get(), &tls_fault);
    }
    if (watchdog.has_value()) {
      // Waits for ever where the streams do: then the manager starts it anew.
      server->open_streams();
      NotifyServiceManager("WATCHDOG=1");
    }
  }

  // `timeout` and some shells send the same signal twice, to the process and to
  // its group; that is no second one.
  AwaitServeSignal(kSameSignal);
  LogInfo(SignalName(signal), ": draining, ", server->open_streams(),
          " streams are open");
  NotifyServiceManager("STOPPING=1\nSTATUS=draining");
  const absl::Time start = absl::Now();
  const EndAtOnce guard("draining");
  server->Drain(start + kDrainTime);
  LogInfo("drained in ", absl::FormatDuration(absl::Trunc(
                             absl::Now() - start, absl::Milliseconds(1))));
  return absl::OkStatus();
}

}  // namespace

void AddServe(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "serve",
      "Serves shards until SIGTERM, then drains: streams end after the block\n"
      "that is being sent. Exits with status 0 then; a second SIGTERM ends it\n"
      "at once. Prints `ready ADDRESS...` on standard output once the index "
      "is\n"
      "open and the first blocks have been built. SIGHUP reads the\n"
      "configuration again: log level, tokens, certificates and limits of bad "
      "data\n"
      "are taken over, and nothing where anything else has changed, as the "
      "log\n"
      "says. Certificates are looked at every minute, too.",
      "  ballast-server serve --config ballast.yaml\n"
      "  ballast-server serve --config ballast.yaml --listen 127.0.0.1:0",
      [options] { return Serve(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command
      ->AddTexts("--listen", &options->listen,
                 "unix:/path or host:port, in the place of serve.listen; "
                 "port 0 lets the system choose")
      .TypeName("ADDRESS");
  command
      ->AddText("--meeting", &options->meeting,
                "unix:/path or host:port of the server where groups of ranks "
                "meet, in the place of topology.meeting")
      .TypeName("ADDRESS");
}

}  // namespace ballast
