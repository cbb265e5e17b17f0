#include "proto/schedule/image_columns.h"

#include <cstddef>

namespace ballast {

FirstEntries FirstEntriesOf(const v1::MicroBatchSchedule& micro_batch) {
  const int samples = micro_batch.images_size();
  FirstEntries first;
  first.image.assign(samples + 1, 0);
  for (int i = 0; i < samples; ++i) {
    first.image[i + 1] = first.image[i] + micro_batch.images(i);
  }
  if (micro_batch.crops().empty()) {
    first.crop = first.image;
    return first;
  }
  first.crop.assign(samples + 1, 0);
  for (int i = 0; i < samples; ++i) {
    first.crop[i + 1] = first.crop[i];
    for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
      first.crop[i + 1] += micro_batch.crops(k);
    }
  }
  return first;
}

std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch) {
  const std::vector<uint32_t> first = FirstEntriesOf(micro_batch).crop;
  std::vector<uint64_t> patches(micro_batch.images_size(), 0);
  for (size_t i = 0; i < patches.size(); ++i) {
    for (uint32_t k = first[i]; k < first[i + 1]; ++k) {
      patches[i] += CropPatches(micro_batch, k);
    }
  }
  return patches;
}

}  // namespace ballast
