#ifndef BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
#define BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The model's parameters that the size of a block depends on.
struct BlockGeometry {
  uint32_t patch = 14;         // pixels
  uint32_t position_axes = 3;  // 3 (MRoPE) or 1
};

// The part of a sample's row in the schedule that determines the size of its
// payload. The spans point into memory owned elsewhere.
struct PayloadRow {
  uint32_t tokens = 0;
  // For each image: its size in patches.
  absl::Span<const uint32_t> grid_h;
  absl::Span<const uint32_t> grid_w;
  // For each image: the length of its file if it travels encoded, else 0.
  // Empty: all travel as pixels.
  absl::Span<const uint32_t> encoded_bytes;
};

// The row of sample `sample` of a micro-batch that passed CheckColumns.
// `first_images` is FirstImages of that micro-batch. The spans point into
// `micro_batch`.
PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const std::vector<uint32_t>& first_images, uint32_t sample);

// Length of the sample's payload in the module's blocks, a multiple of
// kSampleAlignment. This is what moves if its owner is not its reader.
uint64_t PayloadBytes(const PayloadRow& row, v1::Module module,
                      const BlockGeometry& geometry);

// PayloadBytes of every sample of a micro-batch.
std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   v1::Module module,
                                   const BlockGeometry& geometry);

// The record of image `image` of a row, at `offset` in its vision payload.
ImageRecord ImageOf(const PayloadRow& row, size_t image, uint64_t offset,
                    uint32_t patch);

// The offset within a vision payload after `image`; the next one begins there.
uint64_t NextImageOffset(const ImageRecord& image);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
