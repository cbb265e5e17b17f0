#ifndef BALLAST_TRAINER_SHIM_TOTALS_H_
#define BALLAST_TRAINER_SHIM_TOTALS_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/sample_padding.h"

namespace ballast {

// Exact sums over samples, for loss scaling and counting operations without a
// collective (docs/thd_format.md). Padded sums use each sample's length as the
// language module pads it (JobShape::padding); the others use real lengths. A
// sample counts whole even if a rank has only part of it.
struct PackedTotals {
  uint64_t samples = 0;
  uint64_t tokens = 0;
  uint64_t tokens_squared = 0;
  uint64_t padded_tokens = 0;
  uint64_t padded_tokens_squared = 0;
  uint64_t label_tokens = 0;
  uint64_t patches = 0;
  uint64_t images = 0;  // without videos
  uint64_t videos = 0;

  PackedTotals& operator+=(const PackedTotals& other);
  bool operator==(const PackedTotals& other) const = default;
};

// Sums over all samples of a micro-batch or, with `owner`, over those it trains
// on. Pure; O(samples). `micro_batch` must have passed CheckColumns. An owner
// whose module is not configured owns nothing.
PackedTotals SumTotals(const v1::MicroBatchSchedule& micro_batch,
                       const SamplePadding& padding,
                       const std::optional<v1::Role>& owner = std::nullopt);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TOTALS_H_
