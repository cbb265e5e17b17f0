#ifndef BALLAST_SERVER_DELIVERY_PAYLOAD_H_
#define BALLAST_SERVER_DELIVERY_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "server/delivery/block.h"
#include "server/settings/source_fields.h"

namespace ballast {

// Views of a sample's payload as the arrays in it (docs/block.md).

// The place of one image, ImageBytes long.
absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload);

// Zeroes the bytes between and after the images.
void ClearVisionPadding(const SampleRequest& request);

// The arrays of one sequence.
struct LanguageArrays {
  absl::Span<int32_t> ids;        // [tokens]
  absl::Span<int32_t> labels;     // [tokens]
  absl::Span<int32_t> positions;  // [axes, tokens]
  absl::Span<uint32_t> values;    // [fields that a sample has one of]
  absl::Span<uint32_t> rows;      // [fields that a token has one of, tokens]
};

// Zeroes the bytes between and after the arrays. Returns the arrays of the
// sample's sequence, or of its two.
std::vector<LanguageArrays> OpenLanguagePayload(const SampleRequest& request,
                                                uint32_t position_axes,
                                                FieldCounts fields = {});

// How many fields of each kind.
FieldCounts CountFields(absl::Span<const FieldSpec> specs);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_PAYLOAD_H_
