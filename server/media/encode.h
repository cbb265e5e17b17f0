#ifndef BALLAST_SERVER_MEDIA_ENCODE_H_
#define BALLAST_SERVER_MEDIA_ENCODE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

enum class FileFormat { kJpeg, kPng, kWebp };

// "jpg", "png", "webp".
absl::string_view FileExtension(FileFormat format);

// Encodes RGB rows without gaps as a file; both sides are at least 1. `quality`
// is 1..100 for JPEG (4:2:0) and WebP (lossy); PNG ignores it. Equal pictures
// and libraries give equal bytes. Errors: INTERNAL (another number of bytes;
// the library's message).
absl::StatusOr<std::string> EncodeImage(absl::Span<const uint8_t> rgb,
                                        uint32_t width, uint32_t height,
                                        FileFormat format, int quality);

// As EncodeImage, as a PNG file.
absl::StatusOr<std::string> EncodePng(absl::Span<const uint8_t> rgb,
                                      uint32_t width, uint32_t height);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_ENCODE_H_
