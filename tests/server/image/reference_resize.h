#ifndef BALLAST_TESTS_SERVER_IMAGE_REFERENCE_RESIZE_H_
#define BALLAST_TESTS_SERVER_IMAGE_REFERENCE_RESIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/image/image.h"

namespace ballast {

// Resize as plain loops over a whole image, in the library's order of
// operations: the reference for the vector kernels.
absl::Status ReferenceResize(const RgbImage& source,
                             const Resampling& resampling, uint32_t width,
                             uint32_t height, absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_IMAGE_REFERENCE_RESIZE_H_
