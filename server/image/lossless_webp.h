#ifndef BALLAST_SERVER_IMAGE_LOSSLESS_WEBP_H_
#define BALLAST_SERVER_IMAGE_LOSSLESS_WEBP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// What libwebp allocates to decode a lossless picture beyond its pixels: tables
// of prefix codes, and the small pictures that assign codes and transforms to
// blocks of pixels. `stream`: the payload of a chunk VP8L.
//
// A file of 0.3 MB may ask for 1.3 GB of tables, and only the small pictures
// say how many there are. So this decodes them: at most three pictures of a
// 16th of the pixels, one at a time, in 4 bytes a pixel of theirs. Errors: a
// data fault (damaged or cut before the codes of the pixels).
absl::StatusOr<uint64_t> ReadLosslessTableBytes(absl::string_view stream);

// Likewise for the alpha of a lossy picture of these sides, beyond 4 bytes a
// pixel. `chunk`: the payload of a chunk ALPH. 0 if it is not compressed.
absl::StatusOr<uint64_t> ReadAlphaBytes(absl::string_view chunk, uint32_t width,
                                        uint32_t height);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_LOSSLESS_WEBP_H_
