#include "server/command/fetch.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/progress_bar.h"
#include "common/status_macros.h"
#include "server/config/config_loader.h"
#include "server/job/job_setup.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> listen;
  uint64_t from = 0;
  uint64_t steps = 0;
};

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
}

absl::Status Fetch(const Options& options) {
  BALLAST_ASSIGN_OR_RETURN(LoadedConfig config,
                           LoadConfig(options.config, options.listen));
  if (!config.config.storage().has_cache()) {
    return absl::FailedPreconditionError(
        "there is no storage.cache to fetch into; set its dir and size");
  }
  BALLAST_ASSIGN_OR_RETURN(const ServerIdentity identity,
                           IdentifyServer(config.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<AheadFetcher> ahead,
                           MakeAheadFetcher(job, identity));
  if (ahead == nullptr) {
    std::cout << "no source lies in a store: nothing to fetch\n";
    return absl::OkStatus();
  }
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  const absl::Time start = absl::Now();
  uint64_t steps = 0;
  uint64_t fetched = 0;
  const absl::Status status = ahead->Fetch(
      options.from, options.from + options.steps,
      [&](uint64_t done, uint64_t bytes) {
        steps = done;
        fetched = bytes;
        if (!is_terminal) return;
        const double part = static_cast<double>(done) / options.steps;
        const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
        std::fputs(
            ProgressBar("fetch", part,
                        absl::StrCat(done, " steps, ", Mebibytes(bytes), "  ",
                                     TimeLeft(part, seconds), "    "))
                .c_str(),
            stderr);
        std::fflush(stderr);
      });
  if (is_terminal && !status.ok()) std::cerr << "\n";
  const auto cache = Storage::OfProcess().cache();
  std::cout << steps << " steps from step " << options.from << ": "
            << Mebibytes(fetched) << " fetched, " << Mebibytes(cache->bytes())
            << " of " << Mebibytes(cache->size()) << " in the cache\n";
  return Annotate(status, absl::StrCat("step ", options.from + steps));
}

}  // namespace

void AddFetch(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "fetch",
      R"(Fetches from the object store what the ranks of this server need in the given
steps into storage.cache, so that training begins at the speed of a local disk.
Needs the index. What is there already is not fetched again; what the cache
needs last makes room. Servers do the same as they go (storage.ahead_steps).)",
      "  ballast-server fetch --config ballast.yaml --steps 1000\n"
      "  ballast-server fetch --config ballast.yaml --from 20000 --steps 500",
      [options] { return Fetch(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber("--steps", &options->steps, "number of steps", 1)
      .Required();
  command->AddWholeNumber("--from", &options->from, "first step");
  command
      ->AddTexts("--listen", &options->listen,
                 "address of the server in topology.servers to fetch for, "
                 "instead of serve.listen")
      .TypeName("ADDRESS");
}

}  // namespace ballast
