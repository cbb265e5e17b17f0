#ifndef BALLAST_SERVER_IMAGE_IMAGE_H_
#define BALLAST_SERVER_IMAGE_IMAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

enum class ImageFormat { kJpeg, kPng, kWebp };

struct ImageHeader {
  ImageFormat format;
  uint32_t width = 0;
  uint32_t height = 0;
};

// 8-bit RGB, rows from the top, no gaps: height*width*3 bytes.
struct RgbImage {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;
};

// Most pixels of an image that is decoded; larger ones are refused before any
// memory is taken for them.
inline constexpr uint64_t kMaxImagePixels = uint64_t{1} << 28;

// Format and size from the header alone; `bytes` may be cut after it. Errors:
// INVALID_ARGUMENT (not a JPEG, PNG or WebP; damaged header; a side of 0; over
// kMaxImagePixels), OUT_OF_RANGE (cut before the size: pass more).
absl::StatusOr<ImageHeader> ReadImageHeader(absl::string_view bytes);

// Decodes to RGB exactly as Pillow's Image.open(f).convert("RGB"). EXIF
// orientation is ignored. Errors: INVALID_ARGUMENT (not an image, damaged,
// truncated, too large).
absl::StatusOr<RgbImage> DecodeRgb(absl::string_view bytes);

// Resizes as Pillow's resize((width, height), BICUBIC) does, to the bit. `out`
// holds height*width*3 bytes. `source` has no side of 0. Errors:
// INVALID_ARGUMENT (size of `out`, a side of 0).
absl::Status ResizeBicubic(const RgbImage& source, uint32_t width,
                           uint32_t height, absl::Span<uint8_t> out);

// DecodeRgb, then ResizeBicubic into `out`. A file whose size is not
// `expected` (what the index says) has changed: FAILED_PRECONDITION. Other
// errors are those of the two.
absl::Status DecodeResized(absl::string_view bytes, const ImageHeader& expected,
                           uint32_t width, uint32_t height,
                           absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_IMAGE_H_
