#ifndef BALLAST_SERVER_IMAGE_IMAGE_HEADER_H_
#define BALLAST_SERVER_IMAGE_IMAGE_HEADER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

enum class ImageFormat { kJpeg, kPng, kWebp };

struct ImageHeader {
  ImageFormat format;
  // The stored size, before any orientation is applied.
  uint32_t width = 0;
  uint32_t height = 0;
};

// The largest image that is decoded, in pixels; larger ones are refused before
// any memory is allocated for them.
inline constexpr uint64_t kMaxImagePixels = uint64_t{1} << 28;

// Reads format and size from the header; `bytes` may be cut after it. Errors:
// INVALID_ARGUMENT (not a JPEG, PNG or WebP; damaged header; a side of 0; over
// kMaxImagePixels), OUT_OF_RANGE (cut before the size: pass more).
absl::StatusOr<ImageHeader> ReadImageHeader(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_IMAGE_HEADER_H_
