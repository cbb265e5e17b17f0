#ifndef BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_
#define BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// Packing in host memory, for the host backend and as the reference for the
// CUDA kernels. These functions only move bytes: plans have been made and
// checked before. The batch's buffers keep their capacity between calls.

// A language sample's payload (LanguagePayload) and its real length.
struct TextPiece {
  const uint8_t* payload = nullptr;
  uint32_t tokens = 0;
};

// Sizes the text tensors of `batch` that batch->fields and batch->padded name,
// for batch->context, and empties the others. Fills those that follow from
// `layout` alone.
void SizeText(const TextLayout& layout, uint32_t position_axes,
              PackedBatch* batch);

// Calls SizeText and fills the tensors. `pieces[i]` has the length that
// `layout` gives sample i, whose place context parallelism can divide. `pad_id`
// fills input_ids in padding.
void PackText(absl::Span<const TextPiece> pieces, const TextLayout& layout,
              uint32_t position_axes, int32_t pad_id, PackedBatch* batch);

// An image's pixels, [height, width, 3], and its record.
struct ImagePiece {
  const uint8_t* pixels = nullptr;
  ImageRecord record = {};
};

// As SizeText, for image tensors of batch->pixel_type. The longest segment is
// also that of batch->videos.
void SizeVision(const VisionLayout& layout, const CropLayout& crops,
                PackedBatch* batch);

// Calls SizeVision and fills the image tensors of `batch` in batch->pixel_type.
// `pieces[i]` has the grid that `layout` gives crop i, with grid_t 1.
void PackVision(absl::Span<const ImagePiece> pieces, const VisionLayout& layout,
                const CropLayout& crops, const NormaliseTable& table,
                PackedBatch* batch);

// Sizes the pixels of batch->videos in batch->pixel_type.
void SizeVideos(PackedBatch* batch);

// Calls SizeVideos and fills the pixels. `frames[i]` are the pixels of the
// rank's frame number i, [height, width, 3]; those of a temporal patch lie as
// far apart as batch->videos says.
void PackVideos(absl::Span<const uint8_t* const> frames,
                const NormaliseTable& table, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PACK_CPU_H_
