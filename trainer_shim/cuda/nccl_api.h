#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_
