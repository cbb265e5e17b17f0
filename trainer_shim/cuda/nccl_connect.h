#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_

#include <nccl.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "trainer_shim/cuda/nccl_api.h"

namespace ballast {

struct NcclOptions {
  // Most thread blocks (CTAs) that an exchange takes from the device; the rest
  // stay free for the trainer's kernels. 0: NCCL decides.
  int max_ctas = 0;
  // Bounds the wait for the other ranks to connect.
  absl::Duration connect_timeout = absl::Minutes(5);
  Clock* clock = Clock::Real();  // outlives the call
};

// Two communicators of the same ranks. NCCL cannot connect without blocking and
// then exchange in blocking calls with one: `parent` is non-blocking and
// connects, `exchange` is split off it and blocking, since a call of a
// non-blocking communicator costs a thread. They share resources, so that
// aborting `parent` also ends calls and device work of `exchange`, while
// another thread is inside such a call. Destroy `exchange` first.
struct NcclPair {
  ncclComm_t parent = nullptr;
  ncclComm_t exchange = nullptr;
};

// Connects rank `rank` of `size` under `id`, on the calling thread's current
// device. Blocks until all ranks have done the same, for at most twice
// options.connect_timeout, and leaves nothing behind if it fails. Errors: as
// NcclStatus; DEADLINE_EXCEEDED (not all ranks came).
absl::StatusOr<NcclPair> ConnectNccl(const NcclApi& nccl,
                                     const ncclUniqueId& id, uint32_t rank,
                                     uint32_t size, const NcclOptions& options);

// Splits a blocking communicator of the same ranks off `from`. If `from` is
// blocking, blocks inside NCCL until all ranks have called it; otherwise for at
// most options.connect_timeout. `from` is not aborted. Errors: as ConnectNccl.
absl::StatusOr<ncclComm_t> SplitNccl(const NcclApi& nccl, ncclComm_t from,
                                     int rank, const NcclOptions& options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_
