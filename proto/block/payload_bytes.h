#ifndef BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
#define BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The model's parameters that the size of a block depends on.
struct BlockGeometry {
  uint32_t patch = 14;         // pixels
  uint32_t position_axes = 3;  // 3 (MRoPE) or 1
};

// The part of a sample's row in the schedule that the size of its payload
// depends on. Spans point into memory of somebody else.
struct PayloadRow {
  uint32_t tokens = 0;
  // Per image: its size in patches.
  absl::Span<const uint32_t> grid_h;
  absl::Span<const uint32_t> grid_w;
};

// The row of sample `sample` of a micro-batch (one that passed CheckColumns);
// `first_images` is its FirstImages. Spans point into `micro_batch`.
PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const std::vector<uint32_t>& first_images, uint32_t sample);

// Length of the sample's payload in the module's blocks, a multiple of
// kSampleAlignment: the bytes that move when its owner is not its reader.
uint64_t PayloadBytes(const PayloadRow& row, v1::Module module,
                      const BlockGeometry& geometry);

// The same for every sample of a micro-batch.
std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   v1::Module module,
                                   const BlockGeometry& geometry);

// Within a vision payload: the offset after an image of that many patches that
// begins at `offset`, where the next one begins.
uint64_t NextImageOffset(uint64_t offset, uint32_t grid_h, uint32_t grid_w,
                         uint32_t patch);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
