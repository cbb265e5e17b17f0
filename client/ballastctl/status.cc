#include "client/ballastctl/status.h"

#include <iostream>
#include <utility>

#include "client/ballastctl/snapshot.h"
#include "client/ballastctl/status_view.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 status\n"
    "  ballastctl --server unix:/run/ballast/a.sock status --json\n"
    "\n"
    "JSON keys: server (the name it was configured with), address (where it "
    "was\n"
    "asked), health (\"serving\" or \"not serving\"), refusal (only where the\n"
    "server serves no rank: why), fingerprint, data_fingerprint (what a\n"
    "checkpoint must match), end_step (only where the data end: the first "
    "step\n"
    "without), delivery,\n"
    "modules {vision|language: {dp, align (tokens)}}, batch {global, micro\n"
    "(samples), changes (only with steps of other sizes) [{step, position,\n"
    "global}]}, model {profile, tokenizer, patch, merge, temporal_patch,\n"
    "position_axes, min_pixels, max_pixels}, version, uptime_seconds, step "
    "(the\n"
    "furthest that a rank has got a block of; absent before the first), "
    "spread\n"
    "(of that step: as `balance`) {vision|language: {before, after}}, rates "
    "(a\n"
    "second; absent with --interval 0) {images, read_bytes, sent_bytes, "
    "tokens},\n"
    "workers {all, busy}, queue {samples_waiting, blocks_in_work,\n"
    "blocks_ready}, memory {in_use, idle, bound (bytes)}, cache "
    "{blocks_reused,\n"
    "schedules_found, schedules_computed}, open_streams, clients_total, "
    "clients\n"
    "[{module, rank, split, peer, step, micro_batch, lag (steps), state, "
    "seconds,\n"
    "held_bytes, shared_memory, blocks}], max_bad_samples, bad_samples "
    "[{sample,\n"
    "file, offset, reason, count (how often a block needed it)}], stalls\n"
    "[{stage, sample, file, offset, module, position, seconds}].";

}  // namespace

absl::Status PrintStatus(LoaderClient* client, MetricsClient* metrics,
                         const StatusOptions& options, Clock* clock,
                         std::ostream* out) {
  ServerReport report;
  report.address = client->address();
  BALLAST_ASSIGN_OR_RETURN(report.attach,
                           client->Attach(v1::Role(), v1::Fingerprint()));
  absl::StatusOr<Snapshot> snapshot = TakeSnapshot(metrics, clock, false);
  if (snapshot.ok() && options.interval > absl::ZeroDuration()) {
    report.before = *std::move(snapshot);
    clock->NewSleeper()->Sleep(options.interval);
    snapshot = TakeSnapshot(metrics, clock, false);
  }
  if (snapshot.ok()) {
    report.now = *std::move(snapshot);
  } else if (!absl::IsUnimplemented(snapshot.status())) {
    return snapshot.status();
  }
  report.serving = client->CheckHealth().ok();
  *out << (options.json ? StatusJson(report) : StatusText(report));
  out->flush();
  if (!*out) return absl::UnavailableError("cannot write to standard output");
  return absl::OkStatus();
}

void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    double interval = 1;
    bool json = false;
  };
  auto given = std::make_shared<Given>();
  Command* command = line->AddCommand(
      line->program(), "status",
      "Shows a server's health, version and job (fingerprint, delivery, batch\n"
      "sizes, model), the step that training is at and how even it is, what "
      "the\n"
      "server reads, builds and sends a second, its queue, memory and caches,\n"
      "what is wrong (bad samples, and stages of samples that last too long),\n"
      "and the clients with where they are.",
      kExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, ClientOf(*server));
        BALLAST_ASSIGN_OR_RETURN(const auto metrics, MetricsClientOf(*server));
        StatusOptions options;
        options.interval = absl::Seconds(given->interval);
        options.json = given->json;
        return PrintStatus(client.get(), metrics.get(), options, Clock::Real(),
                           &std::cout);
      });
  command
      ->AddReal("--interval", &given->interval,
                "seconds that rates are taken over, up to 3600; 0: no rates")
      .Between(0.0, 3600.0)
      .TypeName("SECONDS")
      .ShowDefault();
  command->AddFlag("--json", &given->json, "one JSON object");
}

}  // namespace ballast
