#ifndef BALLAST_SERVER_MEDIA_IMAGE_PNG_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PNG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "server/media/image/row_sink.h"

namespace ballast {

// Writes the rows of `bytes`, a PNG of width x height pixels, to `sink`: calls
// Begin, not Finish. Memory, including that of libraries, comes from
// `arena`;
// an interlaced image takes 3 bytes per pixel of it. Sets `warnings` to the
// number of faults that were skipped. Errors: INVALID_ARGUMENT (damaged,
// truncated, another size); RESOURCE_EXHAUSTED (the arena's limit); the sink's.
absl::Status DecodePng(absl::string_view bytes, uint32_t width, uint32_t height,
                       v1::Model::Transparency transparency,
                       ScratchArena* arena, RowSink* sink, uint64_t* warnings);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PNG_H_
