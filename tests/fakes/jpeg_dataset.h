#ifndef BALLAST_TESTS_FAKES_JPEG_DATASET_H_
#define BALLAST_TESTS_FAKES_JPEG_DATASET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ballast {

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

#endif  // BALLAST_TESTS_FAKES_JPEG_DATASET_H_
