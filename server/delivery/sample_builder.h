#ifndef BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_
#define BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/schedule.pb.h"
#include "server/config/model_profile.h"

namespace ballast {

// One planned sample and the place of its payload.
struct SampleRequest {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  SampleRecord record = {};
  // Of all images of the sample, whichever the module.
  absl::Span<const ImageGrid> grids;
  // Vision: where each image's pixels go, from the payload's first byte.
  absl::Span<const ImageRecord> images;
  // record.payload_bytes long, at a multiple of 256; holds anything.
  absl::Span<uint8_t> payload;
};

enum class SampleOutcome { kBuilt, kPlaceholder };

// Fills the payload of one sample: the seam between blocks and what is in them.
// Thread-safe: many samples are built at once.
class SampleBuilder {
 public:
  virtual ~SampleBuilder() = default;

  // Writes every byte of the payload (padding is zero), so that equal requests
  // give equal bytes on every server. Blocks on the disk. Errors: DATA_LOSS
  // (the sample could not be read, and no placeholder may stand for it).
  virtual absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_SAMPLE_BUILDER_H_
