#include "proto/block/block_layout.h"

#include "common/align.h"

namespace ballast {

LanguagePayload LayOutLanguage(uint64_t tokens, uint32_t position_axes) {
  const uint64_t column = AlignUp(tokens * sizeof(int32_t), kArrayAlignment);
  LanguagePayload payload;
  payload.ids = 0;
  payload.labels = column;
  payload.positions = 2 * column;
  payload.bytes = AlignUp(2 * column + tokens * sizeof(int32_t) * position_axes,
                          kSampleAlignment);
  return payload;
}

}  // namespace ballast
