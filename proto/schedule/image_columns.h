#ifndef BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
#define BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"

namespace ballast {

// The places of images and crops in the columns of a micro-batch: those of
// sample i are the entries first[i] to first[i + 1], exclusive.
struct FirstEntries {
  // Places in crops, image_height and image_width. One entry a sample, and the
  // number of images.
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

// Patches of entry `crop` of the columns of crops.
inline uint64_t CropPatches(const v1::MicroBatchSchedule& micro_batch,
                            uint32_t crop) {
  return uint64_t{micro_batch.grid_h(crop)} * micro_batch.grid_w(crop);
}

// Patches of all images of each sample.
std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
