#include "proto/block/block_layout.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"

namespace ballast {

LanguagePayload LayOutLanguage(uint64_t tokens, uint32_t position_axes,
                               FieldCounts fields) {
  const uint64_t column = AlignUp(tokens * sizeof(int32_t), kArrayAlignment);
  LanguagePayload payload;
  payload.ids = 0;
  payload.labels = column;
  payload.positions = 2 * column;
  const uint64_t end =
      payload.positions + tokens * sizeof(int32_t) * position_axes;
  payload.values = AlignUp(end, kArrayAlignment);
  payload.rows = payload.values +
                 AlignUp(fields.per_sample * sizeof(int32_t), kArrayAlignment);
  payload.bytes =
      AlignUp(payload.rows + fields.per_token * tokens * sizeof(int32_t),
              kSampleAlignment);
  return payload;
}

absl::StatusOr<uint64_t> StepsWithData(const v1::Job& job, uint64_t step,
                                       uint64_t steps) {
  if (job.end_step() == 0) return steps;
  if (step >= job.end_step()) return DataEnd(job);
  const uint64_t left = job.end_step() - step;
  return steps == 0 ? left : std::min(steps, left);
}

absl::Status DataEnd(const v1::Job& job) {
  return absl::OutOfRangeError(absl::StrCat("the data end before step ",
                                            job.end_step(), " (order.epochs)"));
}

}  // namespace ballast
