#ifndef BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_
#define BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_

#include <cstdint>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/patchify.h"

namespace ballast {

// Packing in host memory, for the host backend and as the reference for the
// CUDA kernels. These functions only move bytes: plans have been made and
// checked, and the batch has its memory (PackedBatch::Reserve).

// A language sample's payload (LanguagePayload) and its real length.
struct TextPiece {
  const uint8_t* payload = nullptr;
  uint32_t tokens = 0;
};

// Fills the text tensors that `batch` has. `pieces[i]` has the length that
// batch->text gives sample i, whose place context parallelism can divide.
// `pad_id` fills input_ids in padding.
void PackText(absl::Span<const TextPiece> pieces, int32_t pad_id,
              PackedBatch* batch);

// An image's pixels, [height, width, 3], and its record.
struct ImagePiece {
  const uint8_t* pixels = nullptr;
  ImageRecord record = {};
};

// Fills the pixels of images, if `batch` has them. `pieces[i]` has the grid
// that batch->vision gives crop i, with grid_t 1.
void PackVision(absl::Span<const ImagePiece> pieces,
                const NormaliseTable& table, PackedBatch* batch);

// Fills the pixels of batch->videos, if `batch` has them. `frames[i]` are the
// pixels of the rank's frame number i, [height, width, 3]; the frames of a
// temporal patch lie as far apart as batch->videos says.
void PackVideos(absl::Span<const uint8_t* const> frames,
                const NormaliseTable& table, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_
