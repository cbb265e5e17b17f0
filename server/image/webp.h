#ifndef BALLAST_SERVER_IMAGE_WEBP_H_
#define BALLAST_SERVER_IMAGE_WEBP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/image/row_sink.h"
#include "server/image/scratch_arena.h"

namespace ballast {

// Writes the rows of `bytes`, a WebP of width x height pixels, to `sink`: calls
// Begin, not Finish. libwebp only writes whole pictures, so this takes 3 bytes
// per pixel from `arena`, and up to 4 from malloc in libwebp, which count
// towards the arena's limit. Errors: INVALID_ARGUMENT (damaged, truncated,
// another size); RESOURCE_EXHAUSTED (the arena's limit); the sink's.
absl::Status DecodeWebp(absl::string_view bytes, uint32_t width,
                        uint32_t height, ScratchArena* arena, RowSink* sink);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_WEBP_H_
