#ifndef BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_
#define BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/block/block_geometry.h"
#include "proto/block/block_layout.h"
#include "proto/block/payload_bytes.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/delivery_rule.h"

namespace ballast {

// One sample's part of a block.
struct PlannedSample {
  uint32_t index;  // into the micro-batch's columns
  uint32_t owner;  // data-parallel rank of the block's module
  SampleRecord record;
};

// The layout of a block before its bytes exist: its samples, their order and
// places. The server fills the block by it. A rank derives from it what will
// arrive and what its peers will send, so sizes are never communicated.
struct BlockPlan {
  BlockHeader header;
  // In destination order: ascending (owner, place).
  std::vector<PlannedSample> samples;
  // Crops of the images of samples[0], then of samples[1], …; empty of a module
  // that does not take images.
  std::vector<ImageRecord> images;

  // Length of the whole block.
  uint64_t bytes() const { return header.total_bytes; }
};

// The geometry of a job's blocks, as a server describes the job.
BlockGeometry GeometryOf(const v1::Job& job);

// Plans the block that `role` pulls for micro-batch number `micro_batch` of
// `schedule`: the samples that `delivery` assigns to it. Pure. `schedule` must
// have passed CheckColumns (proto/schedule/schedule_columns.h). Errors:
// INVALID_ARGUMENT (no such module or micro-batch, a schedule of another split
// than the role's, a fingerprint that is not 32 hexadecimal digits, a list of
// servers whose number of ranks differs from the module's).
absl::StatusOr<BlockPlan> PlanBlock(const v1::StepSchedule& schedule,
                                    uint32_t micro_batch, const v1::Role& role,
                                    const DeliveryRule& delivery,
                                    const BlockGeometry& geometry);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_BLOCK_PLAN_H_
