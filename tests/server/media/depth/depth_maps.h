#ifndef BALLAST_TESTS_SERVER_MEDIA_DEPTH_DEPTH_MAPS_H_
#define BALLAST_TESTS_SERVER_MEDIA_DEPTH_DEPTH_MAPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/media/rows_rule.h"

namespace ballast {

// Depth maps as a kind of media: PNGs of 16 bits and one channel. A row is a
// patch, row by row of its pixels, as they are stored; a patch is a token. Who
// links this has the kind `depth`, with the number `patch` and a module
// `depth`.
MediumKind DepthKind();

// The pixels of such a file, row by row. Errors: a data fault (not such a PNG,
// other sides, damage).
absl::StatusOr<std::vector<uint16_t>> ReadDepthMap(absl::string_view file,
                                                   uint32_t width,
                                                   uint32_t height);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_MEDIA_DEPTH_DEPTH_MAPS_H_
