#ifndef BALLAST_SERVER_TEXT_POSITIONS_H_
#define BALLAST_SERVER_TEXT_POSITIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace ballast {

// The size in patches of what one run of placeholders stands for, as the
// Hugging Face processors return it.
struct GridThw {
  uint32_t t = 1;
  uint32_t h = 0;
  uint32_t w = 0;
  // Of a video: positions from one temporal patch to the next, of which the
  // whole part counts: transformers' time_interval.
  float interval = 1;
};

// Writes the position ids of one sample. With model.position_axes 3 (MRoPE, the
// multimodal rotary position of Qwen2-VL, arXiv 2409.12191) `out` is [3,
// ids.size()]: text advances all axes alike, an image counts the rows and
// columns of its merged grid, and text continues after the larger of the two.
// With 1 it is [ids.size()]: 0, 1, 2, …. `videos` has one grid for each run of
// video placeholders; as in transformers 5, text continues after its rows and
// columns, however long the video is. Errors: INVALID_ARGUMENT (size of
// `out`; placeholders in `ids` that do not fit `grids` or `videos`).
absl::Status ComputePositions(absl::Span<const int32_t> ids,
                              absl::Span<const GridThw> grids,
                              const v1::Model& model, absl::Span<int32_t> out,
                              absl::Span<const GridThw> videos = {});

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_POSITIONS_H_
