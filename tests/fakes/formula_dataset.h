#ifndef BALLAST_TESTS_FAKES_FORMULA_DATASET_H_
#define BALLAST_TESTS_FAKES_FORMULA_DATASET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace ballast {

// A WebDataset of PNGs in which every pixel identifies its place. The sizes are
// ones that the qwen2_5_vl profile does not resize (multiples of 28).

inline constexpr uint32_t kFormulaPatch = 14;

// The size in patches of image `image` of sample `sample`; both sides even, 4
// to 10.
struct FormulaGrid {
  uint32_t h, w;
};
FormulaGrid GridOfFormulaImage(uint32_t sample, uint32_t image);

// The uniform colour of the patch at (row, column) of the image.
std::array<uint8_t, 3> FormulaColour(uint32_t sample, uint32_t image,
                                     uint32_t row, uint32_t column);

// The number of images (at most 4) of a sample.
inline uint32_t FormulaImages(uint32_t sample) { return sample % 4; }

// Writes `samples` (at most 256) samples to the tar file `path`, in order.
absl::Status WriteFormulaDataset(
    const std::string& path, uint32_t samples,
    const std::function<uint32_t(uint32_t sample)>& images = FormulaImages);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FORMULA_DATASET_H_
