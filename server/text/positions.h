#ifndef BALLAST_SERVER_TEXT_POSITIONS_H_
#define BALLAST_SERVER_TEXT_POSITIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"

namespace ballast {

// The size in patches of the medium of one run of placeholders, as the Hugging
// Face processors return it.
struct GridThw {
  uint32_t t = 1;
  uint32_t h = 0;
  uint32_t w = 0;
  // Of a video: positions from one temporal patch to the next, of which the
  // whole part counts.
  float interval = 1;
  // Of a video of Qwen2.5-Omni's or Qwen3-Omni's: positions a second, in place
  // of `interval`, and the seconds between temporal patches.
  uint32_t ids_per_second = 0;
  double seconds = 0;
  // Placeholders of the video's audio, which are among its own
  // (OrderAudioInVideo), with the marks of both around them; 0: of the video
  // alone.
  uint64_t audio_tokens = 0;
};

// Writes the position ids of one sample to `out`, [model.position_axes,
// ids.size()]; of a model with HasFloatPositions the bits of float32. `grids`
// has one grid for each image, `videos` one for each run of video placeholders.
// By the number of axes:
//
//   1  0, 1, 2, …
//   3  MRoPE, the multimodal rotary position of Qwen2-VL (arXiv 2409.12191),
//      GLM and ERNIE: text advances all axes alike, an image counts the rows
//      and columns of its merged grid, a video its times, too, and text
//      continues after the largest of all: as the paper and the authors'
//      get_rope_index_2, _25 and _3 (Qwen3-VL's repository, rope2d.py). By a
//      profile with `text_after_sides`, text continues after a video's rows and
//      columns, as in transformers from 5.3 on. A video with its audio is
//      placed as by PlaceAudioInVideo. The times of Qwen3-Omni are not rounded.
//   4  HunyuanVL's: the sequence, then column, row and number of the image for
//      its tokens and the newline after each row, and the sequence for all
//      others, among them an image's first and last placeholder.
//
// Errors: INVALID_ARGUMENT (size of `out`; placeholders in `ids` that do not
// fit `grids` or `videos`).
absl::Status ComputePositions(absl::Span<const int32_t> ids,
                              absl::Span<const GridThw> grids,
                              const v1::Model& model, absl::Span<int32_t> out,
                              absl::Span<const GridThw> videos = {});

// Writes 0, 1, 2, … to each axis, for a sample that has no other positions.
void CountPositions(const v1::Model& model, absl::Span<int32_t> out);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_POSITIONS_H_
