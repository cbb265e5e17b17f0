#ifndef BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
#define BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_

#include "absl/status/status.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// Passes a batch from tensor rank 0 to its tensor peers. Every rank of `peers`,
// the group of one data-parallel, pipeline and context rank, makes one call;
// their batches have the same sizes. Data that follow from the schedule are not
// sent: every rank lays its batch out first (BatchAssembler::Describe). Only
// the tensors that the batch's fields name and the placeholder flags move. Rank
// 0 only reads `batch`, the others fill it. Blocks until this rank's part is
// done. Errors: as Communicator::Broadcast; INVALID_ARGUMENT (a peer's sizes
// differ).
absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
