#ifndef BALLAST_TESTS_FUZZ_DECODE_TWICE_H_
#define BALLAST_TESTS_FUZZ_DECODE_TWICE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/image/image_header.h"

namespace ballast {

// For fuzz targets: decodes and resizes `bytes` if their header is of `format`
// and the image is small enough to be quick, with and without the `fast`
// setting and orientation. A decoder that has seen all previous inputs and a
// new one must agree on the pixels or on the error; otherwise aborts.
void DecodeTwice(ImageFormat format, absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_DECODE_TWICE_H_
