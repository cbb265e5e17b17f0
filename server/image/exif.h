#ifndef BALLAST_SERVER_IMAGE_EXIF_H_
#define BALLAST_SERVER_IMAGE_EXIF_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/image/image_header.h"

namespace ballast {

// The transformation that makes a stored picture upright, in EXIF's numbers: 1
// none; 2 mirrored left to right; 3 rotated by 180 degrees; 4 mirrored top to
// bottom; 5 transposed; 6 rotated by 90 degrees clockwise; 7 transposed along
// the other diagonal; 8 rotated by 90 degrees anticlockwise.
using Orientation = int;
inline constexpr Orientation kUpright = 1;

// True if width and height are exchanged.
inline bool SwapsSides(Orientation orientation) { return orientation >= 5; }

// The EXIF orientation of a file whose header is `header`; kUpright if it has
// none or an invalid one. In a PNG only EXIF before the image data counts; an
// orientation in XMP alone does not. Errors: OUT_OF_RANGE (cut before the
// orientation could be found: pass more; a WebP has it at its end).
absl::StatusOr<Orientation> ReadOrientation(absl::string_view bytes,
                                            const ImageHeader& header);

// The orientation in an EXIF block, which starts with its byte order ("II" or
// "MM"). Only its first directory counts.
Orientation OrientationOfExif(absl::string_view exif);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_EXIF_H_
