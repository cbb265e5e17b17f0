#include "server/command/commands.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net_address.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/schedule/split.h"
#include "server/command/preview/preview_pages.h"
#include "server/command/preview/sample_view.h"
#include "server/config/config_loader.h"
#include "server/files/storage.h"
#include "server/job/job_setup.h"
#include "server/serve/http/http_server.h"

namespace ballast {

namespace {

struct FetchOptions {
  std::string config;
  std::vector<std::string> listen;
  uint64_t from = 0;
  uint64_t steps = 0;
};

std::string Mebibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
}

absl::Status Fetch(const FetchOptions& options) {
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
    std::cout << "no source is in a store: nothing to fetch\n";
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
  auto options = std::make_shared<FetchOptions>();
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

namespace {

// After a signal the process ends within this.
constexpr absl::Duration kPromised = absl::Seconds(10);
// Before a sample is looked for by its source, all earlier positions are.
constexpr absl::Duration kLongestSearch = absl::Minutes(10);

struct PreviewOptions {
  std::string config;
  std::string split = "train";
  std::optional<uint64_t> position;
  std::string source;
  uint64_t sample = 0;
  uint32_t port = 0;
};

absl::Status Preview(const PreviewOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(ServeSignals signals,
                           ServeSignals::Start(kPromised));
  BALLAST_ASSIGN_OR_RETURN(const LoadedConfig config,
                           LoadConfig(options.config));
  BALLAST_ASSIGN_OR_RETURN(const OpenedJob job, OpenJob(config));
  const SampleViewer viewer(&job);
  const v1::Split split = *ParseSplit(options.split);
  BALLAST_RETURN_IF_ERROR(job.scheduler->OfSplit(split).status());
  uint64_t position = options.position.value_or(0);
  if (!options.source.empty()) {
    BALLAST_ASSIGN_OR_RETURN(
        position, viewer.FindSample(split, options.source, options.sample,
                                    kLongestSearch));
  }
  const absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(absl::StrCat("127.0.0.1:", options.port),
                        MakePreviewPages(&job, &viewer));
  if (!server.ok()) return Annotate(server.status(), "--port");
  // Whoever reads the address may end the command with a signal.
  signals.SetPhase(SignalRule::Phase::kServing);
  std::cout << "http://" << (*server)->address() << "/#" << options.split << "/"
            << position << std::endl;
  if (!config.config.serve().http().empty()) {
    const uint16_t port = ParseNetAddress((*server)->address())->port;
    std::cout << "A running server's page links its samples to this one:\n"
              << (config.config.security().has_tls() ? "https://" : "http://")
              << config.config.serve().http() << "/#preview=" << port
              << std::endl;
  }
  if (!std::cout) {
    return absl::UnavailableError("cannot write to standard output");
  }
  while (signals.Await(absl::Hours(1)) == 0) {
  }
  signals.SetPhase(SignalRule::Phase::kClosing);
  return absl::OkStatus();
}

}  // namespace

void AddPreview(CommandLine* line) {
  auto options = std::make_shared<PreviewOptions>();
  Command* command = line->AddCommand(
      line->program(), "preview",
      R"(Shows samples in a browser as the trainer will get them: the resized images
with their sizes and tokens, the text with image places, supervised tokens
coloured, cost, reader and owner. Prints the page's address, which only this
machine can reach, and runs until Ctrl-C. Needs the index, but no server.)",
      "  ballast-server preview --config ballast.yaml\n"
      "  ballast-server preview --config ballast.yaml --position 17\n"
      "  ballast-server preview --config ballast.yaml --source docs --sample 5",
      [options] { return Preview(*options); });
  command->AddText("--config", &options->config, "configuration file")
      .Required()
      .TypeName("FILE");
  command->AddWholeNumber(
      "--position", [options](uint64_t n) { options->position = n; },
      "first sample to show, by its place in the order", 0,
      std::numeric_limits<uint64_t>::max());
  const Option source = command
                            ->AddText("--source", &options->source,
                                      "first sample to show, by its source")
                            .TypeName("NAME");
  command
      ->AddWholeNumber("--sample", &options->sample,
                       "and its number in the source's index, from 0")
      .Needs(source);
  command->AddText("--split", &options->split, "whose order")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command
      ->AddWholeNumber("--port", &options->port,
                       "port of 127.0.0.1; 0: any that is free", 0, 65535)
      .ShowDefault();
}

}  // namespace ballast
