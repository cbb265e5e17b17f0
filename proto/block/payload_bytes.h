#ifndef BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
#define BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_geometry.h"
#include "proto/block/block_layout.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/image_columns.h"
#include "proto/schedule/module.h"

namespace ballast {

// The part of a sample's row in the schedule that determines the size of its
// payload. The spans point into memory owned elsewhere.
struct PayloadRow {
  uint32_t tokens = 0;
  // For each crop: its size in patches.
  absl::Span<const uint32_t> grid_h;
  absl::Span<const uint32_t> grid_w;
  // For each crop: the length of its file if it travels encoded, else 0.
  // Empty: all travel as pixels.
  absl::Span<const uint32_t> encoded_bytes;
  // For each image: number of its crops. Empty: one each.
  absl::Span<const uint32_t> crops = {};
  // For each image: its sides before resizing. Empty: the model asks not for
  // them.
  absl::Span<const uint32_t> image_height = {};
  absl::Span<const uint32_t> image_width = {};
  // For each image: temporal patches of a video, 0 of an image, and the seconds
  // between two, 0 of an image and of a video whose frames are an image's crops
  // to the model. Empty: no video.
  absl::Span<const uint32_t> grid_t = {};
  absl::Span<const float> seconds_per_patch = {};
};

// The row of sample `sample` of a micro-batch that passed CheckColumns.
// `first` is FirstEntriesOf that micro-batch. The spans point into
// `micro_batch`.
PayloadRow RowOf(const v1::MicroBatchSchedule& micro_batch,
                 const FirstEntries& first, uint32_t sample);

// Length of the sample's payload in the blocks of a module that takes `media`,
// a multiple of kSampleAlignment. This is what moves if its owner is not its
// reader.
uint64_t PayloadBytes(const PayloadRow& row, Media media,
                      const BlockGeometry& geometry);

// PayloadBytes of every sample of a micro-batch.
std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   Media media, const BlockGeometry& geometry);

// Appends the records of a row's crops: those of its first image, then those of
// the second, …, each at its offset in the payload of images.
void AppendCrops(const PayloadRow& row, const BlockGeometry& geometry,
                 std::vector<ImageRecord>* crops);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_PAYLOAD_BYTES_H_
