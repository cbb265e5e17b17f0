#ifndef BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
#define BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_

#include "absl/status/status.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {

// A batch passed from tensor rank 0 to its tensor peers: one call of each rank
// of the group. What is known from the schedule is not sent, so first the peers
// plan (BatchAssembler::Describe) and then bytes move: the tensors that the
// batch's fields name, and which samples are placeholders. `peers` is the group
// of one data-parallel, pipeline and context rank, whose batches all have the
// same sizes. Both block until this rank's part is done. Errors: as
// Communicator::AllToAllV; INVALID_ARGUMENT where a peer's sizes differ.

// Rank 0.
absl::Status SendBatch(const PackedBatch& batch, Communicator* peers);

// Other ranks: fills what `batch` has room for.
absl::Status ReceiveBatch(Communicator* peers, PackedBatch* batch);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_TENSOR_BROADCAST_H_
