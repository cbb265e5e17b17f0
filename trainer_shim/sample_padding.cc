#include "trainer_shim/sample_padding.h"

#include <algorithm>

#include "common/align.h"

namespace ballast {

uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding) {
  if (!padding.rows) return 0;
  if (padding.row_length != 0) return padding.row_length;
  uint64_t longest = 0;
  for (const uint32_t tokens : micro_batch.tokens()) {
    longest = std::max<uint64_t>(longest, tokens);
  }
  return AlignUp(longest, padding.align);
}

}  // namespace ballast
