#include "server/command/preview/sample_search.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "server/corpus/sample_source.h"

namespace ballast {

absl::StatusOr<NameSearch> SearchNames(const OpenedJob& job, v1::Split split,
                                       absl::string_view text, size_t most,
                                       absl::Duration longest) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "no name to look for; wanted a part of one, such as a key or a line");
  }
  const absl::Time end = absl::Now() + longest;
  ReadParts parts;
  parts.images = false;
  NameSearch search;
  for (int i = 0; i < job.config.sources_size(); ++i) {
    if (job.config.sources(i).split() != split) continue;
    const SampleSource& source = *job.sources[i];
    const uint64_t size = source.index().size();
    for (uint64_t ordinal = 0; ordinal < size; ++ordinal) {
      if (search.found.size() == most || absl::Now() >= end) return search;
      ++search.looked_at;
      absl::StatusOr<FaultOr<RawSample>> read = source.Read(ordinal, parts);
      if (!read.ok() || !read->ok()) continue;
      if (!absl::StrContains((*read)->name, text)) continue;
      search.found.push_back(
          {job.config.sources(i).name(), ordinal, std::move((*read)->name)});
    }
  }
  search.complete = true;
  return search;
}

absl::StatusOr<RankSamples> SamplesOfRank(const OpenedJob& job,
                                          const RankPlace& place) {
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           job.scheduler->OfSplit(place.split));
  BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                           scheduler->Schedule(place.step));
  if (place.micro_batch >=
      static_cast<uint32_t>(schedule.micro_batches_size())) {
    return absl::OutOfRangeError(absl::StrCat(
        "step ", place.step, " has ", schedule.micro_batches_size(),
        " micro-batches; wanted number ", place.micro_batch, ", from 0"));
  }
  const v1::MicroBatchSchedule& columns =
      schedule.micro_batches(place.micro_batch);
  for (const v1::ModuleSchedule& module : columns.modules()) {
    if (module.module() != place.module) continue;
    RankSamples samples;
    for (int i = 0; i < columns.position_size(); ++i) {
      const uint64_t position = columns.position(i);
      if (module.reader(i) == place.rank) samples.reads.push_back(position);
      if (module.owner(i) == place.rank) samples.trains_on.push_back(position);
    }
    std::sort(samples.reads.begin(), samples.reads.end());
    std::sort(samples.trains_on.begin(), samples.trains_on.end());
    return samples;
  }
  return absl::NotFoundError(
      absl::StrCat("the job has no module ", ModuleName(place.module)));
}

}  // namespace ballast
