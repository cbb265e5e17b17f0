#ifndef BALLAST_SERVER_IMAGE_PNG_H_
#define BALLAST_SERVER_IMAGE_PNG_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/image/image.h"

namespace ballast {

// DecodeRgb of a PNG whose header is `header`.
absl::StatusOr<RgbImage> DecodePng(absl::string_view bytes,
                                   const ImageHeader& header);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_PNG_H_
