#include "trainer_shim/cuda/nccl_connect.h"

#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr char kNcclLibrary[] = "libnccl.so.2";
constexpr int kMinVersion = NCCL_VERSION(2, 18, 1);

// The library is never closed, since NCCL runs its own threads.
absl::StatusOr<void*> FindNccl() {
  if (void* loaded = dlopen(kNcclLibrary, RTLD_NOW | RTLD_NOLOAD)) {
    return loaded;
  }
  if (dlsym(RTLD_DEFAULT, "ncclCommSplit") != nullptr) return RTLD_DEFAULT;
  if (void* found = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL)) return found;
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

absl::StatusOr<NcclApi> FindNcclApi() {
  const absl::StatusOr<void*> library = FindNccl();
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
  if (api.GetVersion(&version) != ncclSuccess || version < kMinVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL's version is ", version, ", wanted ", kMinVersion, " or later"));
  }
  return api;
}

absl::StatusCode GetCode(ncclResult_t result) {
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
  const absl::StatusCode code = GetCode(result);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  return absl::Status(
      code, absl::StrCat(what, ": ", nccl.GetErrorString(result), " (",
                         nccl.GetLastError(nullptr), ")"));
}

absl::StatusOr<const NcclApi*> LoadNccl() {
  static const absl::StatusOr<NcclApi>* const api =
      new absl::StatusOr<NcclApi>(FindNcclApi());
  if (!api->ok()) return api->status();
  return &**api;
}

namespace {

constexpr absl::Duration kLook = absl::Milliseconds(10);

ncclConfig_t GetConfig(const NcclOptions& options, uint32_t size,
                       bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  config.maxCTAs =
      options.max_ctas > 0 ? options.max_ctas : DefaultMaxCtas(size);
  return config;
}

// Of a pair's parent: non-blocking, and shares its abort with what is split
// off.
ncclConfig_t GetParentConfig(const NcclOptions& options, uint32_t size) {
  ncclConfig_t config = GetConfig(options, size, /*blocking=*/false);
  config.splitShare = 1;
  return config;
}

// Waits until the operation that `communicator`, which is non-blocking, has
// begun is done: until NCCL reports it and `done` is true. Errors: as
// ConnectNccl.
absl::Status Await(const NcclApi& nccl, ncclComm_t communicator,
                   const std::string& what, const std::function<bool()>& done,
                   const NcclOptions& options) {
  const std::unique_ptr<Sleeper> sleeper = options.clock->NewSleeper();
  const absl::Time start = options.clock->Now();
  while (true) {
    ncclResult_t state = ncclInProgress;
    BALLAST_RETURN_IF_ERROR(
        NcclStatus(nccl, nccl.CommGetAsyncError(communicator, &state), what));
    BALLAST_RETURN_IF_ERROR(NcclStatus(nccl, state, what));
    if (state == ncclSuccess && done()) return absl::OkStatus();
    if (options.clock->Now() - start >= options.connect_timeout) {
      return absl::DeadlineExceededError(absl::StrCat(
          what, ": not all ranks connected within ",
          absl::FormatDuration(options.connect_timeout),
          "; has one of them ended, or no way to the others (NCCL_DEBUG=INFO "
          "shows which addresses it uses)?"));
    }
    sleeper->Sleep(kLook);
  }
}

void Keep(std::unique_ptr<ncclComm_t> written_later) {
  struct Kept {
    Mutex mutex;
    std::vector<std::unique_ptr<ncclComm_t>> all ABSL_GUARDED_BY(mutex);
  };
  static auto* const kept = new Kept;
  MutexLock lock(&kept->mutex);
  kept->all.push_back(std::move(written_later));
}

// Aborts `communicator` unless `status` is OK.
absl::Status OrAbort(const NcclApi& nccl, ncclComm_t communicator,
                     const absl::Status& status) {
  if (status.ok() || communicator == nullptr) return status;
  const absl::Status aborted =
      NcclStatus(nccl, nccl.CommAbort(communicator), "aborting a connection");
  if (!aborted.ok()) LogError(aborted.message());
  return status;
}

// Splits a communicator of the same ranks off `from`. Errors: as SplitNccl.
absl::StatusOr<ncclComm_t> Split(const NcclApi& nccl, ncclComm_t from, int rank,
                                 ncclConfig_t config, const std::string& what,
                                 const NcclOptions& options) {
  // If `from` is non-blocking, a thread of NCCL writes it, also after this wait
  // has been given up: then it is kept until the process ends.
  auto own_it = std::make_unique<ncclComm_t>(nullptr);
  ncclComm_t* const own = own_it.get();
  const ncclResult_t begun =
      nccl.CommSplit(from, /*color=*/0, rank, own, &config);
  absl::Status status = NcclStatus(nccl, begun, what);
  const auto is_made = [own] {
    return std::atomic_ref<ncclComm_t>(*own).load() != nullptr;
  };
  // NCCL may return success before its thread has begun.
  if (status.ok() && (begun == ncclInProgress || !is_made())) {
    status = Await(nccl, from, what, is_made, options);
    if (!status.ok()) Keep(std::move(own_it));
  }
  BALLAST_RETURN_IF_ERROR(status);
  return *own;
}

// The pair of `parent`, which was begun with GetParentConfig: waits until it is
// ready, and splits the other one off it. Errors: as ConnectNccl.
absl::StatusOr<NcclPair> Complete(const NcclApi& nccl, ncclComm_t parent,
                                  int rank, uint32_t size,
                                  const std::string& what,
                                  const NcclOptions& options) {
  NcclPair pair;
  pair.parent = parent;
  absl::Status status = Await(
      nccl, parent, what, [] { return true; }, options);
  if (status.ok()) {
    const absl::StatusOr<ncclComm_t> exchange =
        Split(nccl, parent, rank, GetConfig(options, size, /*blocking=*/true),
              what, options);
    status = exchange.status();
    if (status.ok()) pair.exchange = *exchange;
  }
  BALLAST_RETURN_IF_ERROR(OrAbort(nccl, parent, status));
  return pair;
}

}  // namespace

absl::StatusOr<NcclPair> SplitNccl(const NcclApi& nccl, ncclComm_t from,
                                   int rank, uint32_t size,
                                   const NcclOptions& options) {
  const std::string what = "splitting the trainer's communicator";
  BALLAST_ASSIGN_OR_RETURN(
      const ncclComm_t parent,
      Split(nccl, from, rank, GetParentConfig(options, size), what, options));
  return Complete(nccl, parent, rank, size, what, options);
}

absl::StatusOr<NcclPair> ConnectNccl(const NcclApi& nccl,
                                     const ncclUniqueId& id, uint32_t rank,
                                     uint32_t size,
                                     const NcclOptions& options) {
  const std::string what =
      absl::StrCat("making NCCL's communicator as rank ", rank, " of ", size);
  ncclConfig_t config = GetParentConfig(options, size);
  ncclComm_t parent = nullptr;
  const absl::Status begun = NcclStatus(
      nccl, nccl.CommInitRankConfig(&parent, size, id, rank, &config), what);
  BALLAST_RETURN_IF_ERROR(OrAbort(nccl, parent, begun));
  return Complete(nccl, parent, rank, size, what, options);
}

}  // namespace ballast
