#ifndef BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
#define BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

// A rank's packed batch of one micro-batch, in host memory. BatchInfo::tensors
// lists its tensors (tensor_table.h, docs/thd_format.md). All are dense and
// row-major, and are read by name:
//
//   absl::Span<const int64_t> ids = batch.Get<int64_t>("input_ids");
//   absl::Span<const uint16_t> bits = batch.Get<uint16_t>("pixel_values");
struct PackedBatch : BatchInfo {
  // Grows `packed` to the batch's size. Keeps memory that is large enough.
  void Reserve() {
    if (packed.size() < packed_bytes) packed.resize(packed_bytes);
  }

  // The values of a tensor; empty if the batch has none of this name, or none
  // with elements as large as T: uint16_t for bfloat16, uint8_t for bool.
  template <typename T>
  absl::Span<const T> Get(absl::string_view name) const {
    const BatchTensor* tensor = FindTensor(*this, name);
    if (tensor == nullptr || sizeof(T) != ElementBytes(tensor->type)) return {};
    return {reinterpret_cast<const T*>(Data(*tensor)),
            static_cast<size_t>(tensor->shape.elements())};
  }
  // Likewise, for a kPacked tensor.
  template <typename T>
  absl::Span<T> Mutable(absl::string_view name) {
    const absl::Span<const T> values = Get<T>(name);
    return {const_cast<T*>(values.data()), values.size()};
  }
  uint8_t* MutableBytes(absl::string_view name) {
    const BatchTensor* tensor = FindTensor(*this, name);
    return tensor == nullptr ? nullptr : packed.data() + tensor->offset;
  }

  // The tensors' views, valid until the batch changes.
  std::vector<TensorView> Views() const;

  std::vector<uint8_t> packed;  // at least packed_bytes
  // Copies of a device's lists, which must equal the layouts' (CopyToHost).
  // Empty: the lists are where the layouts have them.
  std::vector<uint8_t> lists;

  // Time of packing, without exchange, decoding and waiting.
  absl::Duration pack_time;
  // Time of decoding the images that passed through encoded. 0: there were
  // none.
  absl::Duration decode_time;
  // Time of the exchange, including other ranks' delays. 0: no exchange.
  absl::Duration exchange_time;

 private:
  const void* Data(const BatchTensor& tensor) const;
};

// ComputeDigest over the batch's tensors.
std::string ComputeDigest(const PackedBatch& batch);

// XXH3-128 over each sample's part of the tensors, in packing order: the digest
// of a sample does not depend on the batch's other samples. Language: this
// context rank's part of its ids, labels, mask and positions. Vision: its
// images' grids and pixels. Audio: the lengths and features. As
// ComputeDigest, in 32 hexadecimal digits.
std::vector<std::string> SampleDigests(const PackedBatch& batch);

// Packing in host memory, for the host backend and as the reference for the
// CUDA kernels. These functions only move bytes: plans have been made and
// checked, and the batch has its memory (PackedBatch::Reserve).

// A sequence's payload (LanguagePayload) and its real length.
struct TextPiece {
  const uint8_t* payload = nullptr;
  uint32_t tokens = 0;
};

// Fills the text tensors that `batch` has. `pieces[i]` has the length that
// batch->text gives sequence i, whose place context parallelism can divide.
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

// Fills the features of audio, if `batch` has them: `features[i]` of each clip;
// a dummy clip, the last, gets zeros.
void PackClips(absl::Span<const uint8_t* const> features, PackedBatch* batch);

// Fills the pixels of batch->videos, if `batch` has them. `frames[i]` are the
// pixels of the rank's frame number i, [height, width, 3]; the distance between
// the frames of a temporal patch is as in batch->videos.
void PackVideos(absl::Span<const uint8_t* const> frames,
                const NormaliseTable& table, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_PACKED_BATCH_H_
