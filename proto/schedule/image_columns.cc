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
  const FirstEntries first = FirstEntriesOf(micro_batch);
  std::vector<uint64_t> patches(micro_batch.images_size(), 0);
  for (uint32_t i = 0; i < patches.size(); ++i) {
    ForEachSegment(micro_batch, first, i,
                   [&](uint64_t segment, uint32_t count) {
                     patches[i] += segment * count;
                   });
  }
  return patches;
}

std::vector<uint32_t> SampleVideos(const v1::MicroBatchSchedule& micro_batch) {
  std::vector<uint32_t> videos(micro_batch.images_size(), 0);
  if (micro_batch.grid_t().empty()) return videos;
  const FirstEntries first = FirstEntriesOf(micro_batch);
  for (size_t i = 0; i < videos.size(); ++i) {
    for (uint32_t k = first.image[i]; k < first.image[i + 1]; ++k) {
      videos[i] += GridT(micro_batch, k) != 0 ? 1 : 0;
    }
  }
  return videos;
}

}  // namespace ballast
