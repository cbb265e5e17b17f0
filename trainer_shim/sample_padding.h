#ifndef BALLAST_TRAINER_SHIM_SAMPLE_PADDING_H_
#define BALLAST_TRAINER_SHIM_SAMPLE_PADDING_H_

#include <cstdint>

#include "proto/schedule.pb.h"

namespace ballast {

// How many tokens the language module pads each sample to: a multiple of
// `align`, or, with packing.mode `padded`, the length of a row, which all
// samples of a micro-batch share. A plain value.
struct SamplePadding {
  uint32_t align = 1;  // at least 1
  bool rows = false;   // packing.mode `padded`
  // packing.row_length, a multiple of `align`. 0: the longest sample's.
  uint32_t row_length = 0;
};

// The length of each row of a micro-batch, S: `padding.row_length`, or the
// length of the longest sample of all data-parallel ranks, rounded up to a
// multiple of `align`. It follows from the schedule, so all ranks and pipeline
// stages agree on it before any bytes arrive. 0 unless `padding.rows`. Pure.
uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_SAMPLE_PADDING_H_
