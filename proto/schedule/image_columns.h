#ifndef BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
#define BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"

namespace ballast {

// The places of images and crops in the columns of a micro-batch: those of
// sample i are the entries first[i] to first[i + 1], exclusive.
struct FirstEntries {
  // Places in crops, image_height, image_width, grid_t and seconds_per_patch.
  // One entry a sample, and the number of images.
  std::vector<uint32_t> image;
  // Places in grid_h, grid_w and encoded_bytes. One entry a sample, and the
  // number of crops.
  std::vector<uint32_t> crop;
};
FirstEntries FirstEntriesOf(const v1::MicroBatchSchedule& micro_batch);

// Crops of entry `image` of the columns of images.
inline uint32_t CropsOf(const v1::MicroBatchSchedule& micro_batch,
                        uint32_t image) {
  return micro_batch.crops().empty() ? 1 : micro_batch.crops(image);
}

// Largest file that travels encoded: bounds the memory of an image on its way,
// whatever the size of its pixels.
inline constexpr uint32_t kMostEncodedBytes = (uint32_t{1} << 26) - 1;

// Length of the file of entry `crop` of the columns of crops if it travels
// encoded; 0 if it travels as pixels.
inline uint32_t EncodedBytes(const v1::MicroBatchSchedule& micro_batch,
                             uint32_t crop) {
  return micro_batch.encoded_bytes().empty() ? 0
                                             : micro_batch.encoded_bytes(crop);
}

// Temporal patches of entry `image` of the columns of images if it is a video;
// 0 if it is an image.
inline uint32_t GridT(const v1::MicroBatchSchedule& micro_batch,
                      uint32_t image) {
  return micro_batch.grid_t().empty() ? 0 : micro_batch.grid_t(image);
}

// Patches of entry `crop` of the columns of crops; of a frame of a video those
// of one temporal patch.
inline uint64_t CropPatches(const v1::MicroBatchSchedule& micro_batch,
                            uint32_t crop) {
  return uint64_t{micro_batch.grid_h(crop)} * micro_batch.grid_w(crop);
}

// Calls add(patches, count) for the stretches of patches of sample `sample`
// within which vision towers attend: each crop of an image, and each temporal
// patch of a video, all `count` of which have as many. `first` is
// FirstEntriesOf the micro-batch.
template <typename Add>
void ForEachSegment(const v1::MicroBatchSchedule& micro_batch,
                    const FirstEntries& first, uint32_t sample, Add add) {
  uint32_t crop = first.crop[sample];
  for (uint32_t k = first.image[sample]; k < first.image[sample + 1]; ++k) {
    const uint32_t end = crop + CropsOf(micro_batch, k);
    if (const uint32_t t = GridT(micro_batch, k); t != 0) {
      add(CropPatches(micro_batch, crop), t);
      crop = end;
    }
    for (; crop < end; ++crop) add(CropPatches(micro_batch, crop), 1u);
  }
}

// Patches of all images and videos of each sample.
std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch);

// Number of videos of each sample.
std::vector<uint32_t> SampleVideos(const v1::MicroBatchSchedule& micro_batch);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
