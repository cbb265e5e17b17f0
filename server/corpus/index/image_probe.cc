#include "server/corpus/index/image_probe.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {

absl::StatusOr<ImageSize> ProbeImage(const File& file, uint64_t offset,
                                     uint64_t size,
                                     const ImageSizeReader& reader,
                                     ImagesHash* hash) {
  // On the stack, and large enough for most images.
  char first[ImagesHash::kHeadBytes];
  std::string more;
  uint64_t have = 0;
  uint64_t wanted = std::min<uint64_t>(size, sizeof(first));
  while (true) {
    char* bytes = first;
    if (wanted > sizeof(first)) {
      // Reads four times as much as before.
      more.resize(wanted);
      bytes = more.data();
      if (have == sizeof(first)) std::copy_n(first, have, bytes);
    }
    BALLAST_RETURN_IF_ERROR(
        file.ReadAt(offset + have, wanted - have, bytes + have));
    if (have == 0 && hash != nullptr) hash->Add(size, {bytes, wanted});
    have = wanted;
    const absl::StatusOr<ImageSize> found =
        reader(absl::string_view(bytes, have));
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
