#include "client/ballastctl/commands.h"

#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/attach_all.h"
#include "client/batch_stream.h"
#include "client/connection_flags.h"
#include "client/schedule_source.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/block/block_view.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPullExamples[] =
    "  ballastctl --server 127.0.0.1:7070 pull --module vision --dp-rank 0 \\\n"
    "      --step 0 --steps 4\n"
    "  ballastctl --server 127.0.0.1:7070 pull --module language --dp-rank 3 "
    "\\\n"
    "      --step 100 --json\n"
    "  ballastctl --server unix:/run/a.sock,unix:/run/b.sock pull "
    "--module vision \\\n"
    "      --dp-rank 0 --step 0 --steps 1000      (b goes on when a fails)\n"
    "\n"
    "JSON keys, one object a block: step, micro_batch, samples, images "
    "(pixels\n"
    "of them are in the block, so 0 for language), tokens, label_tokens, "
    "bytes,\n"
    "xxh3 (XXH3-64 of the block, 16 hexadecimal digits), placeholders "
    "(samples\n"
    "that could not be read), wait_ms (how long the block was waited for). "
    "The\n"
    "same on every run but for wait_ms.";

// Contents of a verified block.
struct BlockSummary {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint32_t samples = 0;
  uint32_t images = 0;
  uint64_t tokens = 0;
  uint64_t label_tokens = 0;
  uint64_t bytes = 0;
  uint64_t xxh3 = 0;
  uint32_t placeholders = 0;
  double wait_ms = 0;
};

absl::StatusOr<BlockSummary> Verify(const FetchedBlock& block,
                                    const BlockPlan& plan) {
  BALLAST_ASSIGN_OR_RETURN(const BlockView view,
                           BlockView::Parse(block.bytes()));
  BALLAST_RETURN_IF_ERROR(view.Matches(plan));
  BlockSummary summary;
  summary.step = block.step();
  summary.micro_batch = block.micro_batch();
  summary.samples = view.samples().size();
  summary.images = view.images().size();
  for (const SampleRecord& sample : view.samples()) {
    summary.tokens += sample.tokens;
    summary.label_tokens += sample.label_tokens;
    if (sample.flags & kSampleIsPlaceholder) ++summary.placeholders;
  }
  summary.bytes = block.bytes().size();
  summary.xxh3 = XXH3_64bits(block.bytes().data(), block.bytes().size());
  return summary;
}

std::string SummaryToJson(const BlockSummary& block) {
  const Json json = {{"step", block.step},
                     {"micro_batch", block.micro_batch},
                     {"samples", block.samples},
                     {"images", block.images},
                     {"tokens", block.tokens},
                     {"label_tokens", block.label_tokens},
                     {"bytes", block.bytes},
                     {"xxh3", absl::StrFormat("%016x", block.xxh3)},
                     {"placeholders", block.placeholders},
                     // Rounded to the microsecond.
                     {"wait_ms", std::round(block.wait_ms * 1e3) / 1e3}};
  return json.dump() + "\n";
}

// Lines are printed as blocks arrive, so column widths are fixed beforehand.
std::string Titles() {
  return absl::StrFormat("%8s %11s %7s %6s %8s %12s %12s %16s %12s %9s\n",
                         "step", "micro_batch", "samples", "images", "tokens",
                         "label_tokens", "bytes", "xxh3", "placeholders",
                         "wait_ms");
}

std::string ToLine(const BlockSummary& block) {
  return absl::StrFormat("%8d %11d %7d %6d %8d %12d %12d %016x %12d %9.3f\n",
                         block.step, block.micro_batch, block.samples,
                         block.images, block.tokens, block.label_tokens,
                         block.bytes, block.xxh3, block.placeholders,
                         block.wait_ms);
}

}  // namespace

absl::Status PullBatches(absl::Span<LoaderClient* const> servers,
                         const PullOptions& options, Clock* clock,
                         std::ostream* out) {
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse attached,
                           AttachAll(servers, options.role, v1::Fingerprint(),
                                     options.failover.start_patience, clock));
  const v1::Job& job = attached.job();
  const BlockGeometry geometry = GetGeometry(job);
  BALLAST_ASSIGN_OR_RETURN(const DeliveryRule delivery,
                           GetRule(job, options.role.module()));
  BatchStream::Options stream_options;
  stream_options.request.role = options.role;
  stream_options.request.step = options.step;
  BALLAST_ASSIGN_OR_RETURN(stream_options.request.steps,
                           StepsWithData(job, options.step, options.steps));
  stream_options.request.fingerprint = attached.fingerprint().hash();
  stream_options.request.verify_shared_memory = true;
  stream_options.servers = ServerNames(servers);
  stream_options.failover = options.failover;
  stream_options.clock = clock;
  BALLAST_ASSIGN_OR_RETURN(
      const std::unique_ptr<BatchStream> stream,
      BatchStream::Create(
          [servers](size_t server, const FetchRequest& request) {
            return servers[server]->OpenPull(request);
          },
          stream_options));
  ScheduleSource::Options schedule_options;
  schedule_options.fingerprint = attached.fingerprint().hash();
  schedule_options.split = options.role.split();
  schedule_options.failover = options.failover;
  schedule_options.clock = clock;
  ScheduleSource schedules(servers, schedule_options);

  if (!options.json) *out << Titles();
  while (true) {
    const absl::Time start = clock->Now();
    auto block = stream->Next();
    const absl::Duration waited = clock->Now() - start;
    if (absl::IsOutOfRange(block.status())) {
      if (stream_options.request.steps != options.steps) {
        LogInfo(DataEnd(job).message());
      }
      return absl::OkStatus();
    }
    BALLAST_RETURN_IF_ERROR(block.status());
    const uint64_t step = (*block)->step();
    const uint32_t micro_batch = (*block)->micro_batch();
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule* const schedule,
                             schedules.Get(step));
    BALLAST_ASSIGN_OR_RETURN(
        const BlockPlan plan,
        PlanBlock(*schedule, micro_batch, options.role, delivery, geometry));
    auto summary = Verify(**block, plan);
    // Checked before the block's own error: faults in overwritten bytes mean
    // nothing.
    BALLAST_RETURN_IF_ERROR(CheckIntact(**block));
    if (!summary.ok()) {
      return Annotate(
          summary.status(),
          absl::StrCat(absl::StrJoin(ServerNames(servers), ", "), ": step ",
                       step, " micro-batch ", micro_batch));
    }
    summary->wait_ms = absl::ToDoubleMilliseconds(waited);
    *out << (options.json ? SummaryToJson(*summary) : ToLine(*summary));
    BALLAST_RETURN_IF_ERROR(Flush(*out));
  }
}

void AddPull(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Line {
    std::string module;
    uint32_t dp_rank = 0;
    std::string split = "train";
    PullOptions options;
  };
  auto given = std::make_shared<Line>();
  Command* command = line->AddCommand(
      line->program(), "pull",
      "Pulls a rank's blocks as a trainer would, without a GPU, and checks "
      "each\n"
      "against its checksum, its layout and the schedule. One line a block.",
      kPullExamples, [server, given]() -> absl::Status {
        given->options.role.set_module(*ParseModule(given->module));
        given->options.role.set_dp_rank(given->dp_rank);
        given->options.role.set_split(*ParseSplit(given->split));
        BALLAST_ASSIGN_OR_RETURN(const auto clients, GetClients(*server));
        std::vector<LoaderClient*> servers;
        for (const auto& client : clients) servers.push_back(client.get());
        return PullBatches(servers, given->options, Clock::Real(), &std::cout);
      });
  command->AddText("--module", &given->module, "whose blocks")
      .OneOf(ModuleNames())
      .Required();
  command->AddWholeNumber("--dp-rank", &given->dp_rank, "data-parallel rank")
      .Required();
  command->AddText("--split", &given->split, "whose samples")
      .OneOf({"train", "valid", "test"})
      .ShowDefault();
  command->AddWholeNumber("--step", &given->options.step, "first step")
      .Required();
  command
      ->AddWholeNumber("--steps", &given->options.steps, "number of steps", 1)
      .ShowDefault();
  command->AddFlag("--json", &given->options.json, "one JSON object a block");
  AddFailoverFlags(command, &given->options.failover);
}

}  // namespace ballast
