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

struct JpegDataset {
  uint32_t samples = 48;
  // One image in so many is damaged: see DamagedCopy. Damage of a header may
  // leave its sample out of the index. 0: none is.
  uint32_t damaged_every = 0;
  // One sample in so many has images, 1 to 3 of them.
  uint32_t images_every = 1;
};

// Writes a WebDataset to the tar file `path`. Of its images four in six are
// JPEGs for engines, grey, 4:4:4, 4:2:2 and 4:2:0; the others are progressive
// JPEGs and PNGs. Sizes, pixels and texts are formulas of the sample.
absl::Status WriteJpegDataset(const std::string& path,
                              const JpegDataset& dataset);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_FORMULA_DATASET_H_
