#ifndef BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULE_H_
#define BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULE_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/schedule.pb.h"

namespace ballast {

inline v1::Role RoleOf(v1::Module module, uint32_t rank) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(rank);
  return role;
}

// The time that `rank` of `module` took for a micro-batch.
inline v1::StepTiming GetTiming(v1::Module module, uint32_t rank, uint64_t step,
                                uint32_t micro_batch, double milliseconds) {
  v1::StepTiming timing;
  *timing.mutable_role() = RoleOf(module, rank);
  timing.set_step(step);
  timing.set_micro_batch(micro_batch);
  timing.set_milliseconds(milliseconds);
  return timing;
}

// A job whose samples and schedule are formulas of the position, for tests of
// code that consumes a schedule. Positions cycle through text only, one image,
// three images, one image.
struct SyntheticJob {
  uint32_t vision_dp = 2;  // 0: no such module
  uint32_t language_dp = 2;
  // 0: no such module. Else positions cycle through no clip of audio, one,
  // three and one, with `clip_width` numbers in a row.
  uint32_t audio_dp = 0;
  uint32_t clip_width = 10;
  uint32_t samples_per_group = 3;  // a micro-batch has this times the grid
  uint32_t micro_batches = 2;
  // Step s has 1 + s % 3 micro-batches instead of a fixed number.
  bool dynamic = false;
  // Under `hybrid`, each of two servers reads for half of the ranks.
  v1::Delivery delivery = v1::DELIVERY_EXCHANGE;
  // Group 0 owns one more sample, and the last group one fewer.
  bool uneven = false;
  // balance.placement `split`: vision's owners are others than language's. Both
  // modules have one dp, unless they are on ranks of their own (`apart`).
  bool split = false;
  bool apart = false;  // topology.colocated: false
  uint32_t align = 4;
  // packing.mode `padded`, with rows of this length; 0: as the longest sample.
  bool padded = false;
  uint32_t row_length = 0;
  // A form other than `merge_order`: images have one to three crops, tiles have
  // a margin of a pixel, and the job says how large images were before
  // resizing.
  v1::Model::ImageForm form = v1::Model::IMAGE_FORM_MERGE_ORDER;
  // The model takes videos. Every third position has one after its images, and
  // every sixth two, of one to six frames each. With tiles a frame is a tile.
  bool videos = false;
  // The frames of these videos are crops among those of images.
  bool frames_are_crops = false;
  // Peers of each data-parallel rank, in both modules.
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t cp = 1;
};

// LCM of the dp sizes, samples of a micro-batch, micro-batches of a step.
uint32_t GetGrid(const SyntheticJob& job);
uint32_t MicroBatchOf(const SyntheticJob& job);
uint32_t MicroBatchesOf(const SyntheticJob& job, uint64_t step);

// Sources `docs` and `chat`. Readers take equal runs of positions; places are a
// fixed permutation (the identity under `off`); owners take runs of places.
v1::StepSchedule SyntheticSchedule(const SyntheticJob& job, uint64_t step);

// The matching Job message: patch 4, merge 2, temporal_patch 2 (1 for padded
// patches), at most 48 patches of a padded crop, MRoPE positions, mean 0.5, std
// 0.25, pad id 7.
v1::Job SyntheticJobMessage(const SyntheticJob& job);

// "00112233445566778899aabbccddeeff", the fingerprint of every synthetic
// schedule.
extern const char kSyntheticFingerprint[];

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_SYNTHETIC_SCHEDULE_H_
