#ifndef BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
#define BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/schedule.pb.h"

namespace ballast {

// Checks that a micro-batch can be read column by column: each column has one
// entry for each sample (or image, or crop), each side of a crop is 1 to 65535
// patches, no file that passes through encoded is above kMaxEncodedBytes,
// every reader and owner is a rank of its module, packs that several ranks
// share are as pack_ranks wants them, and every slot is a micro-batch of the
// step. A schedule from the wire must pass this once before
// anything indexes it. O(samples). Errors: INVALID_ARGUMENT, naming the column,
// the value found and what was wanted.
absl::Status CheckColumns(const v1::StepSchedule& schedule,
                          const v1::MicroBatchSchedule& micro_batch);

// Checks every micro-batch of the step, and that each slot contains the places
// 0, 1, 2, … once each.
absl::Status CheckColumns(const v1::StepSchedule& schedule);

// The places of images and crops in the columns of a micro-batch: sample i has
// the entries first[i] to first[i + 1], exclusive.
struct FirstEntries {
  // Places in crops, image_height, image_width, grid_t and seconds_per_patch.
  // One entry a sample, and the number of images.
  std::vector<uint32_t> image;
  // Places in grid_h, grid_w and encoded_bytes. One entry a sample, and the
  // number of crops.
  std::vector<uint32_t> crop;
  // Places in clip_rows and clip_frames. One entry a sample, and the length of
  // clip_rows.
  std::vector<uint32_t> clip;
};
FirstEntries GetFirstEntries(const v1::MicroBatchSchedule& micro_batch);

// Crops of entry `image` of the columns of images.
inline uint32_t GetCrops(const v1::MicroBatchSchedule& micro_batch,
                         uint32_t image) {
  return micro_batch.crops().empty() ? 1 : micro_batch.crops(image);
}

// Largest file that passes through encoded: bounds the memory of an image in
// transit, whatever the size of its pixels.
inline constexpr uint32_t kMaxEncodedBytes = (uint32_t{1} << 26) - 1;

// Most rows of features of a clip, and numbers of a row: their bytes fit in 32
// bits.
inline constexpr uint32_t kMaxClipRows = uint32_t{1} << 20;
inline constexpr uint32_t kMaxClipWidth = 1023;

// Length of the file of entry `crop` of the columns of crops if it passes
// through encoded; 0 if it is sent as pixels.
inline uint32_t EncodedBytes(const v1::MicroBatchSchedule& micro_batch,
                             uint32_t crop) {
  return micro_batch.encoded_bytes().empty() ? 0
                                             : micro_batch.encoded_bytes(crop);
}

// Tokens of the first of the two sequences of sample `sample`; 0: it has one.
inline uint32_t FirstTokens(const v1::MicroBatchSchedule& micro_batch,
                            uint32_t sample) {
  return micro_batch.first_tokens().empty() ? 0
                                            : micro_batch.first_tokens(sample);
}

// Ranks that share the pack of sample `sample`: its owner and those after it.
inline uint32_t PackRanks(const v1::ModuleSchedule& module, uint32_t sample) {
  return module.pack_ranks().empty() ? 1 : module.pack_ranks(sample);
}

// Whether rank `rank` trains on sample `sample`, or on part of it.
inline bool TrainsOn(const v1::ModuleSchedule& module, uint32_t sample,
                     uint32_t rank) {
  // Ranks below the owner wrap around.
  return rank - module.owner(sample) < PackRanks(module, sample);
}

// Temporal patches of entry `image` of the columns of images if it is a video;
// 0 if it is an image.
inline uint32_t GridT(const v1::MicroBatchSchedule& micro_batch,
                      uint32_t image) {
  return micro_batch.grid_t().empty() ? 0 : micro_batch.grid_t(image);
}

// Patches of entry `crop` of the columns of crops; for a frame of a video, the
// patches of one temporal patch.
inline uint64_t CropPatches(const v1::MicroBatchSchedule& micro_batch,
                            uint32_t crop) {
  return uint64_t{micro_batch.grid_h(crop)} * micro_batch.grid_w(crop);
}

// Calls add(patches, count) for the attention segments of sample `sample`: the
// ranges of patches within which vision towers attend. A segment is a crop of
// an image, or one of `count` temporal patches of a video, which all have the
// same number of patches. `first` is GetFirstEntries of the micro-batch.
template <typename Add>
void ForEachSegment(const v1::MicroBatchSchedule& micro_batch,
                    const FirstEntries& first, uint32_t sample, Add add) {
  uint32_t crop = first.crop[sample];
  for (uint32_t k = first.image[sample]; k < first.image[sample + 1]; ++k) {
    const uint32_t end = crop + GetCrops(micro_batch, k);
    if (const uint32_t t = GridT(micro_batch, k); t != 0) {
      add(CropPatches(micro_batch, crop), t);
      crop = end;
    }
    for (; crop < end; ++crop) add(CropPatches(micro_batch, crop), 1u);
  }
}

// Frames of audio of each sample.
std::vector<uint64_t> SampleFrames(const v1::MicroBatchSchedule& micro_batch);

// Their placeholders; 0 from an older server.
std::vector<uint64_t> SampleClipTokens(
    const v1::MicroBatchSchedule& micro_batch);

// Patches of all images and videos of each sample.
std::vector<uint64_t> SamplePatches(const v1::MicroBatchSchedule& micro_batch);

// Number of videos of each sample.
std::vector<uint32_t> SampleVideos(const v1::MicroBatchSchedule& micro_batch);

// The sums over all samples of a micro-batch, without embeddings. O(samples).
v1::Totals SumColumns(const v1::MicroBatchSchedule& micro_batch);
void AddTotals(const v1::Totals& more, v1::Totals* totals);

// Formats a step for people: one line for each micro-batch and module with the
// load of its ranks before and after balancing (smallest, largest, largest over
// mean) and the number of samples that move to another rank; then the step's
// totals. `ballast-server plan` and `ballastctl schedule` print it without
// --json.
std::string ScheduleToTable(const v1::StepSchedule& schedule);

// Formats a step as one line of JSON without a line break, the same for equal
// schedules. `ballast-server plan --json` and `ballastctl schedule --json`
// print it.
//   {"step", "fingerprint", "micro_batches": [{"samples": [{"position",
//    "sample": "SOURCE:ORDINAL", "images", "patches", "tokens",
//    "label_tokens", "cost": {M: x}, "reader": {M: r}, "owner": {M: r}, "slot",
//    "place"}], "load": {M: {"before": [per rank], "after": [per rank]}},
//    "dummies": {"vision": [rank, …]}}], "totals": {"tokens", "tokens_squared",
//    "label_tokens", "patches", "images"}}
// `dummies` is present only if a rank must add a dummy image, and a sample's
// "pack_ranks": {M: n} only with packing.dynamic_cp.
std::string ScheduleToJson(const v1::StepSchedule& schedule);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_SCHEDULE_TABLE_H_
