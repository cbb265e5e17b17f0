#ifndef BALLAST_SERVER_SAMPLE_IMAGE_HEADER_H_
#define BALLAST_SERVER_SAMPLE_IMAGE_HEADER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The beginning of a pointer that git leaves in place of a file of LFS.
inline constexpr absl::string_view kLfsPointer =
    "version https://git-lfs.github.com/spec/";

// The sides of an image in pixels, as an index and plans have them.
struct ImageSize {
  uint32_t width;
  uint32_t height;
};
static_assert(sizeof(ImageSize) == 8);

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

// Reads format and size from the header; `bytes` may be cut after it. Errors: a
// data fault (not a JPEG, PNG or WebP; damaged header; a side of 0; over
// kMaxImagePixels), OUT_OF_RANGE (cut before the size: pass more).
absl::StatusOr<ImageHeader> ReadImageHeader(absl::string_view bytes);

// An upper bound of the memory that the decoder of the file with this header
// takes beyond a row of pixels for its caller: for a JPEG that is progressive
// or has several scans 2 bytes a coefficient (3 to 6 a pixel), for an
// interlaced PNG 3 bytes a pixel, for a WebP 7; for all others some rows. Of a
// lossless WebP the header does not say all (ReadWebpTableBytes). `bytes` may
// be cut after the header; for a JPEG, after the header of its first scan.
// Errors: as ReadImageHeader.
absl::StatusOr<uint64_t> ReadDecoderBytes(absl::string_view bytes,
                                          const ImageHeader& header);

// The largest result of ReadDecoderBytes for any file of this format and size.
uint64_t MostDecoderBytes(const ImageHeader& header);

// Bytes at the end of an image's file that show whether it is whole.
inline constexpr uint64_t kImageEndBytes = 12;

// Whether a file of `size` bytes that begins with `head` ends as its format
// wants it: a JPEG or PNG with its last marker or chunk, a WebP not before the
// length in its header. `tail` are its last kImageEndBytes, or all. False: it
// was cut short, or others' bytes follow; decoding shows which. True of what is
// no image.
bool HasImageEnd(absl::string_view head, absl::string_view tail, uint64_t size);

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

#endif  // BALLAST_SERVER_SAMPLE_IMAGE_HEADER_H_
