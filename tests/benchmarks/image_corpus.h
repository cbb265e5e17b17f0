#ifndef BALLAST_TESTS_BENCHMARKS_IMAGE_CORPUS_H_
#define BALLAST_TESTS_BENCHMARKS_IMAGE_CORPUS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/sample/image_header.h"

namespace ballast {

// A JPEG and the size that a Qwen2.5-VL processor resizes it to.
struct CorpusImage {
  std::string bytes;
  ImageHeader header = {};
  uint32_t width = 0;
  uint32_t height = 0;
};

// Loads the JPEGs of BALLAST_SHARED_DIR/corpus/images; if it is not set, draws
// scenes and receipts of 0.5 to 3 megapixels. `max_pixels` bounds their size
// after resizing. Exits on an error.
std::vector<CorpusImage> LoadImageCorpus(uint64_t max_pixels);

// Draws a photograph-like baseline JPEG (4:2:0, quality 90).
std::string DrawPhotograph(int width, int height);

}  // namespace ballast

#endif  // BALLAST_TESTS_BENCHMARKS_IMAGE_CORPUS_H_
