#ifndef BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
#define BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "proto/schedule.pb.h"

namespace ballast {

// The images of sample i of a micro-batch are the entries first[i] to
// first[i + 1], exclusive, of the columns grid_h and grid_w, where `first` is
// what FirstImages returns: one entry a sample, and the number of images.
std::vector<uint32_t> FirstImages(const v1::MicroBatchSchedule& micro_batch);

// Largest file that travels encoded: bounds the memory of an image on its way,
// whatever the size of its pixels.
inline constexpr uint32_t kMostEncodedBytes = (uint32_t{1} << 26) - 1;

// Length of the file of entry `image` of those columns if it travels encoded; 0
// if it travels as pixels.
inline uint32_t EncodedBytes(const v1::MicroBatchSchedule& micro_batch,
                             uint32_t image) {
  return micro_batch.encoded_bytes().empty() ? 0
                                             : micro_batch.encoded_bytes(image);
}

// Patches of entry `image` of those columns.
inline uint64_t ImagePatches(const v1::MicroBatchSchedule& micro_batch,
                             uint32_t image) {
  return uint64_t{micro_batch.grid_h(image)} * micro_batch.grid_w(image);
}

// Patches of all images of each sample.
std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_IMAGE_COLUMNS_H_
