#include "trainer_shim/cuda/nccl_api.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";
constexpr int kLeastVersion = NCCL_VERSION(2, 18, 1);

// The library is never closed, since NCCL runs its own threads.
absl::StatusOr<void*> FindLibrary() {
  if (void* loaded = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (dlsym(RTLD_DEFAULT, "ncclCommSplit") != nullptr) return RTLD_DEFAULT;
  if (void* found = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return found;
  return absl::FailedPreconditionError(absl::StrCat(
      "no NCCL: the process has loaded none, and the system has none (",
      dlerror(), "); load the trainer's before, or set LD_LIBRARY_PATH"));
}

template <typename Function>
absl::Status Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("NCCL has no ", name, ": wanted 2.18.1 or later"));
}

absl::StatusOr<NcclApi> Load() {
  const absl::StatusOr<void*> library = FindLibrary();
  if (!library.ok()) return library.status();
  NcclApi api;
  absl::Status status;
  status.Update(Resolve(*library, "ncclBroadcast", &api.Broadcast));
  status.Update(Resolve(*library, "ncclCommAbort", &api.CommAbort));
  status.Update(Resolve(*library, "ncclCommCount", &api.CommCount));
  status.Update(Resolve(*library, "ncclCommDestroy", &api.CommDestroy));
  status.Update(
      Resolve(*library, "ncclCommGetAsyncError", &api.CommGetAsyncError));
  status.Update(
      Resolve(*library, "ncclCommInitRankConfig", &api.CommInitRankConfig));
  status.Update(Resolve(*library, "ncclCommSplit", &api.CommSplit));
  status.Update(Resolve(*library, "ncclCommUserRank", &api.CommUserRank));
  status.Update(Resolve(*library, "ncclGetErrorString", &api.GetErrorString));
  status.Update(Resolve(*library, "ncclGetLastError", &api.GetLastError));
  status.Update(Resolve(*library, "ncclGetUniqueId", &api.GetUniqueId));
  status.Update(Resolve(*library, "ncclGetVersion", &api.GetVersion));
  status.Update(Resolve(*library, "ncclGroupEnd", &api.GroupEnd));
  status.Update(Resolve(*library, "ncclGroupStart", &api.GroupStart));
  status.Update(Resolve(*library, "ncclRecv", &api.Recv));
  status.Update(Resolve(*library, "ncclSend", &api.Send));
  if (!status.ok()) return status;
  int version = 0;
  if (api.GetVersion(&version) != ncclSuccess || version < kLeastVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL's version is ", version, ", wanted ", kLeastVersion,
                     " or later"));
  }
  return api;
}

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return absl::StatusCode::kOk;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return absl::StatusCode::kInvalidArgument;
    case ncclRemoteError:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status NcclStatus(const NcclApi& nccl, ncclResult_t result,
                        absl::string_view what) {
  const absl::StatusCode code = CodeOf(result);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  return absl::Status(
      code, absl::StrCat(what, ": ", nccl.GetErrorString(result), " (",
                         nccl.GetLastError(nullptr), ")"));
}

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const absl::StatusOr<NcclApi>* const api =
      new absl::StatusOr<NcclApi>(Load());
  if (!api->ok()) return api->status();
  return &**api;
}

}  // namespace ballast
