#ifndef BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
#define BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_

#include "absl/status/status.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// Passes a batch from tensor rank 0 to its tensor peers: one call of each rank
// of `peers`, the group of one data-parallel, pipeline and context rank, whose
// batches all have the same sizes. What the schedule says is not sent: first
// every rank lays its batch out (BatchAssembler::Describe), then bytes move,
// those of the tensors that the batch's fields name and of which samples are
// placeholders. Rank 0 only reads `batch`, the others fill it. Blocks until
// this rank's part is done. Errors: as Communicator::Broadcast;
// INVALID_ARGUMENT where a peer's sizes differ.
absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
