#ifndef BALLAST_SERVER_COMMAND_PATCH_BYTES_H_
#define BALLAST_SERVER_COMMAND_PATCH_BYTES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/image/image.h"
#include "server/image_plan/image_family.h"

namespace ballast {

// The 8-bit values of an image as its processor arranges them, before it
// normalises them.
struct PatchBytes {
  std::vector<uint64_t> shape;
  std::vector<uint8_t> values;
};

// Arranges the crops of one image. `family.layout` is not kCrops; the crops'
// sides are multiples of family.patch (and of patch*merge for kMergeOrder).
PatchBytes ArrangePatches(absl::Span<const RgbImage> crops,
                          const ImageFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PATCH_BYTES_H_
