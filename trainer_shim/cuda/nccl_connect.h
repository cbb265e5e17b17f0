#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_

#include <nccl.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace ballast {

// The functions of NCCL that the shim calls, from the copy of the library that
// the process uses. NCCL is not linked: a trainer's communicator works only
// with the copy that made it, so that copy must be found at run time
// (docs/decisions/0012-what-the-shim-library-holds.md).
struct NcclApi {
  decltype(&ncclBroadcast) Broadcast = nullptr;
  decltype(&ncclCommAbort) CommAbort = nullptr;
  decltype(&ncclCommCount) CommCount = nullptr;
  decltype(&ncclCommDestroy) CommDestroy = nullptr;
  decltype(&ncclCommGetAsyncError) CommGetAsyncError = nullptr;
  decltype(&ncclCommInitRankConfig) CommInitRankConfig = nullptr;
  decltype(&ncclCommSplit) CommSplit = nullptr;
  decltype(&ncclCommUserRank) CommUserRank = nullptr;
  decltype(&ncclGetErrorString) GetErrorString = nullptr;
  decltype(&ncclGetLastError) GetLastError = nullptr;
  decltype(&ncclGetUniqueId) GetUniqueId = nullptr;
  decltype(&ncclGetVersion) GetVersion = nullptr;
  decltype(&ncclGroupEnd) GroupEnd = nullptr;
  decltype(&ncclGroupStart) GroupStart = nullptr;
  decltype(&ncclRecv) Recv = nullptr;
  decltype(&ncclSend) Send = nullptr;
};

// Finds NCCL: the libnccl.so.2 that the process has loaded, wherever it came
// from; else the NCCL that is linked into the program; else the system's
// libnccl.so.2, which is then loaded. The search runs at the first call; its
// result is kept until the process ends. Thread-safe. Errors:
// FAILED_PRECONDITION (there is none, or it is older than 2.18.1, which cannot
// split communicators).
absl::StatusOr<const NcclApi*> LoadNccl();

// The only place where NCCL's errors become statuses. `what` names the failed
// operation; ncclInProgress is no error. Codes: INVALID_ARGUMENT
// (ncclInvalidArgument, ncclInvalidUsage), UNAVAILABLE (ncclRemoteError: a peer
// left), INTERNAL (all else).
absl::Status NcclStatus(const NcclApi& nccl, ncclResult_t result,
                        absl::string_view what);

// The limit of thread blocks of a group of `size` ranks, from 1 to 8. NCCL
// keeps buffers for each thread block and peer, 12 MiB on an H200, and its own
// choice takes 384 MiB for one peer and more for each further one: this limit
// takes at most 252 MiB for up to 21 peers, and 12 MiB for each further one
// (docs/decisions/0132-memory-of-the-exchange.md).
constexpr int DefaultMaxCtas(uint32_t size) {
  constexpr uint32_t kBuffers = 21, kMost = 8;
  const uint32_t peers = size > 1 ? size - 1 : 1;
  const uint32_t ctas = kBuffers / peers;
  return static_cast<int>(ctas < 1 ? 1 : ctas > kMost ? kMost : ctas);
}

struct NcclOptions {
  // Limit of thread blocks (CTAs) that an exchange takes from the device; the
  // rest stay free for the trainer's kernels. 0: DefaultMaxCtas.
  int max_ctas = 0;
  // Bounds the wait for the other ranks to connect.
  absl::Duration connect_timeout = absl::Minutes(5);
  Clock* clock = Clock::Real();  // outlives the call
};

// Two communicators of the same ranks. With one communicator, NCCL cannot
// connect without blocking and then exchange in blocking calls. So `parent` is
// non-blocking and connects; `exchange` is split off it and is blocking, since
// a call of a non-blocking communicator costs a thread. They share resources,
// so that aborting `parent` also ends calls and device work of `exchange`,
// while another thread is inside such a call. Destroy `exchange` first.
struct NcclPair {
  ncclComm_t parent = nullptr;
  ncclComm_t exchange = nullptr;
};

// Connects rank `rank` of `size` under `id`, on the calling thread's current
// device. Blocks until all ranks have done the same, for at most twice
// options.connect_timeout, and keeps nothing if it fails. Errors: as
// NcclStatus; DEADLINE_EXCEEDED (not all ranks came).
absl::StatusOr<NcclPair> ConnectNccl(const NcclApi& nccl,
                                     const ncclUniqueId& id, uint32_t rank,
                                     uint32_t size, const NcclOptions& options);

// Splits a pair of the same ranks off `from`, which is never aborted and shares
// nothing with it. If `from` is blocking, blocks inside NCCL until all ranks
// have called it; all further waits are as ConnectNccl's. Errors: as
// ConnectNccl.
absl::StatusOr<NcclPair> SplitNccl(const NcclApi& nccl, ncclComm_t from,
                                   int rank, uint32_t size,
                                   const NcclOptions& options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_CONNECT_H_
