#ifndef BALLAST_SERVER_IMAGE_EXIF_H_
#define BALLAST_SERVER_IMAGE_EXIF_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/image/image_header.h"

namespace ballast {

// How a stored picture must be turned to be seen as it was taken, in EXIF's
// numbers: 1 as it is; 2 mirrored left to right; 3 turned by half; 4 mirrored
// top to bottom; 5 transposed; 6 turned by a quarter clockwise; 7 transposed
// along the other diagonal; 8 turned by a quarter anticlockwise.
using Orientation = int;
inline constexpr Orientation kUpright = 1;

// Whether width and height change places.
inline bool SwapsSides(Orientation orientation) { return orientation >= 5; }

// The orientation that a file whose header is `header` states in EXIF, or
// kUpright where it states none or none that makes sense. Of a PNG, only EXIF
// before the picture counts; an orientation in XMP alone does not. Errors:
// OUT_OF_RANGE (cut before it could be found: pass more; a WebP has it at its
// end).
absl::StatusOr<Orientation> ReadOrientation(absl::string_view bytes,
                                            const ImageHeader& header);

// That of an EXIF block, which starts with its byte order ("II" or "MM"). Only
// its first directory counts.
Orientation OrientationOfExif(absl::string_view exif);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_EXIF_H_
