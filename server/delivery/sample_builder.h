#ifndef BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/schedule.pb.h"
#include "server/config/model_profile.h"

namespace ballast {

// A planned sample and the memory of its payload.
struct SampleRequest {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  v1::Split split = v1::SPLIT_TRAIN;  // whose order record.position is in
  uint64_t step = 0;                  // of the split
  SampleRecord record = {};
  // The grids of all crops of the sample; set for every module.
  absl::Span<const ImageGrid> grids;
  // For each grid: the length of its image's file if it passes through encoded,
  // else 0. Empty: all images are sent as pixels.
  absl::Span<const uint32_t> encoded_bytes;
  // For each clip of audio of the sample: its rows of features; set for every
  // module.
  absl::Span<const uint32_t> clip_rows;
  // Only for an encoder: the place of each crop, or clip, from the payload's
  // start.
  absl::Span<const ImageRecord> images;
  // record.payload_bytes long, at a multiple of 256; uninitialised.
  absl::Span<uint8_t> payload;

  // Entry `crop` of encoded_bytes.
  uint32_t EncodedBytes(size_t crop) const {
    return encoded_bytes.empty() ? 0 : encoded_bytes[crop];
  }
};

enum class SampleOutcome { kBuilt, kPlaceholder };

// Fills the payload of one sample: the interface between blocks and their
// content. Thread-safe: many samples are built at once.
class SampleBuilder {
 public:
  virtual ~SampleBuilder() = default;

  // Writes every byte of the payload (padding is zero), so that equal requests
  // give equal bytes on every server. Blocks on the disk. Errors: UNAVAILABLE
  // (a transient fault; the sample may be built later or elsewhere), DATA_LOSS
  // (a data fault, and no placeholder may replace the sample; the index has
  // changed since it was opened).
  virtual absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_
