#ifndef BALLAST_SERVER_DELIVERY_PAYLOAD_H_
#define BALLAST_SERVER_DELIVERY_PAYLOAD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "server/delivery/sample_builder.h"

namespace ballast {

// Views of a sample's payload as the arrays in it (docs/block.md).

// The place of one image, ImageBytes long.
absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload);

// Zeroes the bytes between and after the images.
void ClearVisionPadding(const SampleRequest& request);

struct LanguageArrays {
  absl::Span<int32_t> ids;        // [tokens]
  absl::Span<int32_t> labels;     // [tokens]
  absl::Span<int32_t> positions;  // [axes, tokens]
};

// Zeroes the bytes between and after the arrays. Returns the arrays.
LanguageArrays OpenLanguagePayload(const SampleRequest& request,
                                   uint32_t position_axes);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PAYLOAD_H_
