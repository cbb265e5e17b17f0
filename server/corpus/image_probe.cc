#include "server/corpus/image_probe.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

absl::StatusOr<ImageSize> ProbeImage(const File& file, uint64_t offset,
                                     uint64_t size,
                                     const ImageSizeReader& reader) {
  constexpr uint64_t kFirst = uint64_t{64} << 10;
  uint64_t wanted = std::min(size, kFirst);
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             file.ReadAt(offset, wanted));
    const absl::StatusOr<ImageSize> found = reader(bytes);
    if (found.ok() && (found->width == 0 || found->height == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an image of ", found->width, "x", found->height, " pixels"));
    }
    if (found.status().code() != absl::StatusCode::kOutOfRange) return found;
    if (wanted == size) {
      return absl::InvalidArgumentError(
          absl::StrCat("cut inside its header: ", found.status().message()));
    }
    wanted = std::min(size, wanted * 4);
  }
}

}  // namespace ballast
