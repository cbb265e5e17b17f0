// A header does not depend on the bytes after it: the size found in a prefix is
// the size found in the whole file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/media/image/image.h"

namespace ballast {
namespace {

void CheckPart(absl::string_view bytes, size_t length,
               const ImageOptions& options) {
  const auto part = ReadImageSize(bytes.substr(0, length), options);
  // A prefix may need more bytes, whatever the result for the whole file.
  if (absl::IsOutOfRange(part.status())) return;
  const auto whole = ReadImageSize(bytes, options);
  if (part.ok() != whole.ok()) std::abort();
  if (part.ok() &&
      (part->width != whole->width || part->height != whole->height ||
       part->format != whole->format)) {
    std::abort();
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool turned : {false, true}) {
    ballast::ImageOptions options;
    options.apply_exif_orientation = turned;
    for (size_t length = size; length > 0; length -= length / 3 + 1) {
      ballast::CheckPart(bytes, length - 1, options);
    }
  }
  return 0;
}
