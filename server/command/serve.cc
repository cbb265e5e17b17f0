#include "server/command/serve.h"

#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/service/server.h"

namespace ballast {
namespace {

// How long a block that is being sent may take to end after a signal.
constexpr absl::Duration kDrainTime = absl::Seconds(10);

struct Options {
  std::string config;
  std::vector<std::string> listen;
};

absl::Status Serve(const Options& options) {
  // Blocked before any thread is made, so that every thread inherits it and the
  // signals wait for the sigwait below; no handler ever runs.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config, LoadConfig(options.config));
  if (!options.listen.empty()) {
    config.config.mutable_serve()->mutable_listen()->Assign(
        options.listen.begin(), options.listen.end());
  }
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<LoaderServer> server,
                           LoaderServer::Start(config));
  std::cout << "ready " << absl::StrJoin(server->addresses(), " ") << std::endl;
  if (!std::cout) return absl::UnavailableError("cannot write standard output");

  int signal = 0;
  sigwait(&signals, &signal);
  LogInfo("SIG", sigabbrev_np(signal), ": draining");
  server->Drain(absl::Now() + kDrainTime);
  return absl::OkStatus();
}

}  // namespace

void AddServe(CommandLine* line) {
  auto options = std::make_shared<Options>();
  CLI::App* command = line->AddCommand(
      line->app(), "serve",
      "Serves shards until SIGTERM, then drains: streams end after the block\n"
      "that is being sent. Exits with status 0 then. Prints `ready ADDRESS...`\n"
      "on standard output once it accepts.",
      "  ballast-server serve --config ballast.yaml\n"
      "  ballast-server serve --config ballast.yaml --listen 127.0.0.1:0",
      [options] { return Serve(*options); });
  command->add_option("--config", options->config, "configuration file")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--listen", options->listen,
                   "unix:/path or host:port, in the place of serve.listen; "
                   "port 0 lets the system choose")
      ->type_name("ADDRESS");
}

}  // namespace ballast
