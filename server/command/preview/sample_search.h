#ifndef BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_SEARCH_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/schedule.pb.h"
#include "proto/split.pb.h"
#include "server/job/job_setup.h"

namespace ballast {

// A sample whose name was looked for.
struct NamedSample {
  std::string source;
  uint64_t ordinal = 0;  // in the source's index
  std::string name;      // RawSample::name: "docs-000003.tar: 000123"
};

struct NameSearch {
  std::vector<NamedSample> found;
  uint64_t looked_at = 0;  // samples
  bool complete = false;   // every sample of the split was looked at
};

// The samples of a split's sources whose names contain `text`, in the order of
// the indexes, at most `most` of them. The index holds no names, so each
// sample's text is read: ends after `longest` with what was found until then.
// Samples that cannot be read are passed over. Blocks on the disk. Errors:
// INVALID_ARGUMENT (no text).
absl::StatusOr<NameSearch> SearchNames(const OpenedJob& job, v1::Split split,
                                       absl::string_view text, size_t most,
                                       absl::Duration longest);

// A rank's micro-batch.
struct RankPlace {
  v1::Split split = v1::SPLIT_TRAIN;
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint32_t rank = 0;  // data-parallel
  uint64_t step = 0;
  uint32_t micro_batch = 0;
};

// Positions of samples of a micro-batch, in ascending order.
struct RankSamples {
  std::vector<uint64_t> reads;
  std::vector<uint64_t> trains_on;
};

// The samples of the micro-batch that the rank reads, and those that it trains
// on. Errors: OUT_OF_RANGE (the step has no such micro-batch), NOT_FOUND (the
// job has no such module), as Scheduler::Schedule.
absl::StatusOr<RankSamples> SamplesOfRank(const OpenedJob& job,
                                          const RankPlace& place);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_SEARCH_H_
