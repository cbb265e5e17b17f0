#ifndef BALLAST_TESTS_FUZZ_DECODE_TWICE_H_
#define BALLAST_TESTS_FUZZ_DECODE_TWICE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/image/image_header.h"

namespace ballast {

// For fuzz targets: decodes and resizes `bytes` where their header is of
// `format` and asks for little enough to be quick, with and without the `fast`
// setting and turning. A decoder that has seen all inputs before and a new one
// must agree, on the pixels or on the error; otherwise the process aborts.
void DecodeTwice(ImageFormat format, absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_TESTS_FUZZ_DECODE_TWICE_H_
