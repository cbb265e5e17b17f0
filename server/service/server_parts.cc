#include "server/service/server_parts.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/blocking_calls.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/log.h"
#include "common/machine_memory.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"

namespace ballast {
namespace {

// Reads that may hang at the same time before further ones are refused.
constexpr size_t kMaxStuckReads = 64;

// "docs:17 (docs-000.tar at byte 512)"; of a schedule, the index files.
std::string Describe(const FileSampleBuilder& builder,
                     const std::string& index_files, const ActiveSample& work) {
  if (work.step.has_value()) return index_files;
  const SampleLocation at = builder.Locate(work.source, work.ordinal);
  return absl::StrCat(builder.NameOf(work.source, work.ordinal), " (", at.file,
                      " at byte ", at.offset, ")");
}

}  // namespace

ReadPolicy ReadPolicyOf(const v1::Serve& serve) {
  ReadPolicy policy;
  policy.attempts = serve.read_attempts();
  policy.timeout = absl::Seconds(serve.read_timeout());
  return policy;
}

void GuardSources(const std::shared_ptr<const LiveValue<ReadPolicy>>& policy,
                  OpenedJob* job) {
  const auto calls =
      std::make_shared<BlockingCalls>(kMaxStuckReads, Clock::Real());
  for (std::unique_ptr<SampleSource>& source : job->sources) {
    source = GuardSource(std::move(source), policy, calls, Clock::Real());
  }
}

uint64_t StatedMemory(const v1::Config& config, uint64_t decode_memory) {
  constexpr uint64_t kProgram = uint64_t{512} << 20;
  constexpr uint64_t kThread = uint64_t{32} << 20;
  uint64_t bytes = config.serve().memory() + decode_memory + kProgram +
                   kThread * ThreadsOrCores(config.serve().threads());
  bool has_row_groups = false;
  bool is_in_store = false;
  for (const v1::Source& source : config.sources()) {
    has_row_groups |= source.format() == v1::Source::FORMAT_PARQUET;
    is_in_store |= IsStoreUrl(source.path()) || IsStoreUrl(source.media_root());
  }
  if (has_row_groups) bytes += config.serve().row_group_memory();
  if (is_in_store) bytes += config.storage().memory();
  return bytes;
}

absl::StatusOr<ServerParts> MakeServerParts(const OpenedJob& job,
                                            uint32_t ranks) {
  ServerParts parts;
  parts.build = std::make_unique<BuildInstruments>();
  parts.board = std::make_unique<ActiveSamples>(Clock::Real());
  auto builder = std::make_unique<FileSampleBuilder>(
      job.config, job.source_pointers(), job.text.get(), parts.board.get(),
      parts.build.get());
  parts.builder = builder.get();
  const uint64_t stated =
      StatedMemory(job.config, parts.builder->decode_budget().bytes());
  if (const uint64_t most = MachineMemory(); most != 0 && stated > most) {
    LogWarning("serve.memory, serve.decode_memory and the rest are ",
               stated >> 20, " MiB, and this process may use ", most >> 20,
               " MiB: lower them, or raise the limit of its cgroup");
  }
  BALLAST_ASSIGN_OR_RETURN(
      parts.loader,
      Loader::Create(job.config, ranks, job.scheduler.get(), std::move(builder),
                     Clock::Real(), parts.board.get()));
  BALLAST_ASSIGN_OR_RETURN(
      parts.stall_watch,
      StallWatch::Start(
          parts.board.get(), absl::Seconds(job.config.serve().stall_after()),
          [builder = parts.builder,
           index_files =
               absl::StrJoin(job.index_files, ", ")](const ActiveSample& work) {
            return Describe(*builder, index_files, work);
          },
          Clock::Real()));
  return parts;
}

}  // namespace ballast
