#ifndef BALLAST_SERVER_MEDIA_IMAGE_WEBP_H_
#define BALLAST_SERVER_MEDIA_IMAGE_WEBP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/media/image/row_sink.h"

namespace ballast {

// What libwebp takes from malloc for the file beyond 4 bytes a pixel and some
// rows (ReadDecoderBytes): ReadLosslessTableBytes of the first frame, or of a
// lossy one ReadAlphaBytes. Errors: a data fault.
absl::StatusOr<uint64_t> ReadWebpTableBytes(absl::string_view bytes);

// Writes the rows of `bytes`, a WebP of width x height pixels, to `sink`: calls
// Begin, not Finish. libwebp only writes whole pictures, so this takes 3 bytes
// per pixel from `arena`, and from malloc what ReadDecoderBytes and
// ReadWebpTableBytes say. Errors: a data fault (damaged, truncated, another
// size; the arena's limit); RESOURCE_EXHAUSTED (the machine is out of memory);
// the sink's. With `on_white` transparent pixels are put on white, and a
// picture takes 4 bytes a pixel.
absl::Status DecodeWebp(absl::string_view bytes, uint32_t width,
                        uint32_t height, bool on_white, ScratchArena* arena,
                        RowSink* sink);

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

#endif  // BALLAST_SERVER_MEDIA_IMAGE_WEBP_H_
