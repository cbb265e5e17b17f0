#ifndef BALLAST_SERVER_MEDIA_IMAGE_SOUND_SCAN_H_
#define BALLAST_SERVER_MEDIA_IMAGE_SOUND_SCAN_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Checks every bit of a JPEG that JudgeForEngines does not refuse: whether its
// scan is what a baseline encoder writes. A file that passes has one reading
// only, so JPEG engines make libjpeg's planes of it. It is not enough that
// libjpeg reads a file without a warning: for example, libjpeg accepts a run
// past the end of a block, and the engines read it differently
// (docs/decisions/0028-what-jpeg-engines-may-decode.md).
//
// Valid means: valid Huffman tables; each block of 64 coefficients or fewer,
// each coefficient within the range of 8-bit samples; restart markers in their
// order and places; the end marker after the last block, and nothing after
// that.
//
// Takes about as long as libjpeg's entropy decoder and no memory. Errors:
// INVALID_ARGUMENT with the fault and, in a scan, the number of its MCU
// (minimum coded unit: the blocks of 8x8 or 16x16 pixels that are coded
// together).
absl::Status CheckScan(absl::string_view jpeg);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_SOUND_SCAN_H_
