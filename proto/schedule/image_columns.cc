#include "proto/schedule/image_columns.h"

#include <cstddef>

namespace ballast {

std::vector<uint32_t> FirstImages(const v1::MicroBatchSchedule& micro_batch) {
  std::vector<uint32_t> first(micro_batch.images_size() + 1, 0);
  for (int i = 0; i < micro_batch.images_size(); ++i) {
    first[i + 1] = first[i] + micro_batch.images(i);
  }
  return first;
}

std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch) {
  const std::vector<uint32_t> first = FirstImages(micro_batch);
  std::vector<uint64_t> patches(micro_batch.images_size(), 0);
  for (size_t i = 0; i < patches.size(); ++i) {
    for (uint32_t k = first[i]; k < first[i + 1]; ++k) {
      patches[i] += ImagePatches(micro_batch, k);
    }
  }
  return patches;
}

}  // namespace ballast
