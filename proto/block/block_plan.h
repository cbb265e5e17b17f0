#ifndef BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_
#define BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/block/block_layout.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {

// The part of a sample's row in the schedule that determines the size of its
// payload. The spans point into memory owned elsewhere.
struct PayloadRow {
  uint32_t tokens = 0;
  // For each crop: its size in patches.
  absl::Span<const uint32_t> grid_h;
  absl::Span<const uint32_t> grid_w;
  // For each crop: the length of its file if it passes through encoded, else 0.
  // Empty: all are pixels.
  absl::Span<const uint32_t> encoded_bytes;
  // For each image: number of its crops. Empty: one each.
  absl::Span<const uint32_t> crops = {};
  // For each image: its sides before resizing. Empty: the model does not
  // request them.
  absl::Span<const uint32_t> image_height = {};
  absl::Span<const uint32_t> image_width = {};
  // For each image: temporal patches of a video, 0 for an image, and the
  // seconds between two, 0 for an image and for a video whose frames the model
  // takes as an image's crops. Empty: no video.
  absl::Span<const uint32_t> grid_t = {};
  absl::Span<const float> seconds_per_patch = {};
  // For each clip of audio: its rows of features, and how many of them count.
  absl::Span<const uint32_t> clip_rows = {};
  absl::Span<const uint32_t> clip_frames = {};
  // Tokens of the first of two sequences; 0: there is one sequence.
  uint32_t first_tokens = 0;
};

// The row of sample `sample` of a micro-batch that passed CheckColumns.
// `first` is GetFirstEntries of that micro-batch. The spans point into
// `micro_batch`.
PayloadRow GetRow(const v1::MicroBatchSchedule& micro_batch,
                  const FirstEntries& first, uint32_t sample);

// Length of the sample's payload in the blocks of a module that takes `media`,
// a multiple of kSampleAlignment. This is what moves if its owner is not its
// reader.
uint64_t PayloadBytes(const PayloadRow& row, Media media,
                      const BlockGeometry& geometry);

// PayloadBytes of every sample of a micro-batch.
std::vector<uint64_t> PayloadBytes(const v1::MicroBatchSchedule& micro_batch,
                                   Media media, const BlockGeometry& geometry);

// Appends the records of a row's crops: the crops of its first image, then of
// the second, …, each at its offset in the payload of images.
void AppendCrops(const PayloadRow& row, const BlockGeometry& geometry,
                 std::vector<ImageRecord>* crops);
// Likewise, of a row's clips of audio.
void AppendClips(const PayloadRow& row, const BlockGeometry& geometry,
                 std::vector<ImageRecord>* clips);

// One sample's part of a block.
struct PlannedSample {
  uint32_t index;  // into the micro-batch's columns
  // Data-parallel rank of the block's module for which it is: one row for each
  // rank that shares the sample's pack (ModuleSchedule.pack_ranks).
  uint32_t owner;
  SampleRecord record;
};

// The layout of a block before its bytes exist: its samples, their order and
// places. The server fills the block by it. A rank derives from it what will
// arrive and what its peers will send, so sizes are never communicated.
struct BlockPlan {
  BlockHeader header;
  // In destination order: ascending (owner, place).
  std::vector<PlannedSample> samples;
  // Crops of the images of samples[0], then of samples[1], …; of a module that
  // takes audio their clips; empty for language.
  std::vector<ImageRecord> images;

  // Length of the whole block.
  uint64_t bytes() const { return header.total_bytes; }
};

// Where the numbers of a field are in a language sample.
struct FieldPlace {
  bool per_token = false;  // in `rows`, else in `values`
  uint32_t number = 0;     // of the row, or of the value
};

// The places of a job's fields, in their order, and how many there are.
std::vector<FieldPlace> PlaceFields(
    const google::protobuf::RepeatedPtrField<v1::Job::Field>& fields,
    FieldCounts* counts);

// The geometry of a job's blocks, as a server describes the job.
BlockGeometry GetGeometry(const v1::Job& job);

// Plans the block that `role` pulls for micro-batch number `micro_batch` of
// `schedule`: the samples that `delivery` assigns to it. Pure. `schedule` must
// have passed CheckColumns (proto/schedule/schedule_table.h). Errors:
// INVALID_ARGUMENT (no such module or micro-batch, a schedule of another split
// than the role's, a fingerprint that is not 32 hexadecimal digits, a list of
// servers whose number of ranks differs from the module's).
absl::StatusOr<BlockPlan> PlanBlock(const v1::StepSchedule& schedule,
                                    uint32_t micro_batch, const v1::Role& role,
                                    const DeliveryRule& delivery,
                                    const BlockGeometry& geometry);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_
