#ifndef BALLAST_TRAINER_SHIM_EXCHANGE_PLAN_H_
#define BALLAST_TRAINER_SHIM_EXCHANGE_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/block/block_layout.h"
#include "proto/block/block_plan.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// A run of bytes in a buffer.
struct ByteRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// The bytes that pass between this rank and one peer. Samples are in a block in
// destination order, so everything for one peer is one run of records (rows of
// the sample table) and one run of payload. Records are sent too: they carry a
// flag that only the reader knows (kSampleIsPlaceholder), and let the owner
// check that it received the samples that the schedule lists.
struct PeerSlice {
  uint32_t peer = 0;  // data-parallel rank of the same module
  ByteRun records;
  ByteRun payload;
};

// A sample that this rank owns, and its location before packing.
struct OwnedSample {
  uint32_t index = 0;  // into the micro-batch's columns
  // false: `record` and `payload` are offsets into the rank's own block; true:
  // into its receive buffer.
  bool received = false;
  uint64_t record = 0;   // of its SampleRecord as the reader wrote it
  uint64_t payload = 0;  // of its payload; a multiple of kSampleAlignment
  // The record that the reader must have written, except for
  // kSampleIsPlaceholder.
  SampleRecord expected = {};
  // Index of its first image in ExchangePlan::images. (expected.first_image
  // counts images of the reader's block instead.)
  uint32_t first_image = 0;
};

// Everything known about one micro-batch of one rank before a byte moves: the
// block that it pulls, the ranges that it sends, the ranges that it receives,
// and the packing order. A plain value.
//
// The receive buffer holds the records of all peers, peer after peer, then
// (from a multiple of kSampleAlignment) their payloads, peer after peer.
struct ExchangePlan {
  BlockPlan block;
  std::vector<PeerSlice> sends;     // ranges of the block; ascending peer
  std::vector<PeerSlice> receives;  // ranges of the receive buffer; likewise
  uint64_t receive_bytes = 0;       // length of the receive buffer
  std::vector<OwnedSample> owned;   // in ascending order of place
  std::vector<ImageRecord> images;  // of owned[0], then of owned[1], …

  // Bytes sent to other ranks, and received from them.
  uint64_t bytes_sent() const;
  uint64_t bytes_received() const;

  // Checks that the plan is consistent: the bytes sent and kept add up to the
  // block's payload, the bytes received add up to the receive buffer, and every
  // owned sample and its images are inside their buffer. Errors: INTERNAL with
  // both numbers.
  absl::Status Validate() const;
};

// Plans micro-batch number `micro_batch` of `schedule` for `role`. Pure; the
// plan returned is valid. `schedule` must have passed CheckColumns
// (proto/schedule/schedule_table.h).
//
// Under `direct` and `off` nothing is sent or received, and under `hybrid` only
// between ranks that different servers read for.
//
// Cost: one PlanBlock for the rank's own block, and one for each peer that
// pulls a sample of this rank.
//
// Errors: as PlanBlock; INVALID_ARGUMENT (under `off` a sample's owner is not
// its reader; two samples share a place; a sample names another micro-batch
// than the one that lists it).
absl::StatusOr<ExchangePlan> PlanExchange(const v1::StepSchedule& schedule,
                                          uint32_t micro_batch,
                                          const v1::Role& role,
                                          const DeliveryRule& delivery,
                                          const BlockGeometry& geometry);

// The slices that Communicator::AllToAllV moves for one exchange.
struct ExchangeSlices {
  std::vector<SendSlice> sends;
  std::vector<ReceiveSlice> receives;
};

// Replaces `slices` with the slices of `plan`: for each peer its records, then
// its payload. `block` and `received` are the rank's block and its receive
// buffer, in host or in device memory; neither is touched.
void SliceExchange(const ExchangePlan& plan, const uint8_t* block,
                   uint8_t* received, ExchangeSlices* slices);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_EXCHANGE_PLAN_H_
