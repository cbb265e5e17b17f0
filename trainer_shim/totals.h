#ifndef BALLAST_TRAINER_SHIM_TOTALS_H_
#define BALLAST_TRAINER_SHIM_TOTALS_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The length to which the language module pads each sequence: a multiple of
// `align`, or, with packing.mode `padded`, the length of a row, which all
// sequences of a micro-batch share. A plain value.
struct SamplePadding {
  uint32_t align = 1;  // at least 1
  bool rows = false;   // packing.mode `padded`
  // packing.row_length, a multiple of `align`. 0: the longest sequence's.
  uint32_t row_length = 0;
};

// The length of each row of a micro-batch, S: `padding.row_length`, or the
// length of the longest sequence of all data-parallel ranks, rounded up to a
// multiple of `align`. It follows from the schedule, so all ranks and pipeline
// stages agree on it before any bytes arrive. 0 unless `padding.rows`. Pure.
uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding);

// Exact sums over samples, for loss scaling and counting operations without a
// collective (docs/thd_format.md). Padded sums use each sequence's length as
// the language module pads it (JobShape::padding); the others use real lengths.
// Squares are of sequences. A sample counts whole even if a rank has only part
// of it.
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
  uint64_t clips = 0;   // of audio
  uint64_t frames = 0;  // of them that count

  PackedTotals& operator+=(const PackedTotals& other);
  bool operator==(const PackedTotals& other) const = default;
};

// Sums over all samples of a micro-batch or, with `owner`, over the samples
// that it trains on. Pure; O(samples). `micro_batch` must have passed
// CheckColumns. An owner whose module is not configured owns nothing.
PackedTotals SumTotals(const v1::MicroBatchSchedule& micro_batch,
                       const SamplePadding& padding,
                       const std::optional<v1::Role>& owner = std::nullopt);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_TOTALS_H_
