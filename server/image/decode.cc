#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/image/image.h"
#include "server/image/jpeg.h"
#include "server/image/png.h"
#include "server/image/webp.h"

namespace ballast {
namespace {

// The header of a whole file, where a cut one is just damaged.
absl::StatusOr<ImageHeader> HeaderOfFile(absl::string_view bytes) {
  absl::StatusOr<ImageHeader> header = ReadImageHeader(bytes);
  if (!header.ok() && absl::IsOutOfRange(header.status())) {
    return absl::InvalidArgumentError(header.status().message());
  }
  return header;
}

absl::StatusOr<RgbImage> Decode(absl::string_view bytes,
                                const ImageHeader& header) {
  switch (header.format) {
    case ImageFormat::kJpeg:
      return DecodeJpeg(bytes, header);
    case ImageFormat::kPng:
      return DecodePng(bytes, header);
    case ImageFormat::kWebp:
      return DecodeWebp(bytes, header);
  }
  return absl::InternalError("unknown image format");
}

}  // namespace

absl::StatusOr<RgbImage> DecodeRgb(absl::string_view bytes) {
  BALLAST_ASSIGN_OR_RETURN(const ImageHeader header, HeaderOfFile(bytes));
  return Decode(bytes, header);
}

absl::Status DecodeResized(absl::string_view bytes, const ImageHeader& expected,
                           uint32_t width, uint32_t height,
                           absl::Span<uint8_t> out) {
  BALLAST_ASSIGN_OR_RETURN(const ImageHeader header, HeaderOfFile(bytes));
  if (header.width != expected.width || header.height != expected.height) {
    return absl::FailedPreconditionError(
        absl::StrCat("image is ", header.width, "x", header.height,
                     " pixels, not ", expected.width, "x", expected.height,
                     " as when it was indexed; index the source again"));
  }
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, Decode(bytes, header));
  return ResizeBicubic(image, width, height, out);
}

}  // namespace ballast
