#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_

#include <nccl.h>

#include "absl/status/statusor.h"

namespace ballast {

// The functions of NCCL that the shim calls, of the library that the process
// uses. Nothing is linked: a trainer's communicator can only be used with the
// library that made it, so that one must be found, not another
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

// The libnccl.so.2 that the process has loaded, wherever it came from; else the
// NCCL that is linked into the process itself; else libnccl.so.2 as the system
// finds it, which is then loaded. Looked for at the first call and kept to the
// end of the process. Thread-safe. Errors: FAILED_PRECONDITION (there is none,
// or one before 2.18.1, which cannot split communicators).
absl::StatusOr<const NcclApi*> LoadNccl();

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_API_H_
