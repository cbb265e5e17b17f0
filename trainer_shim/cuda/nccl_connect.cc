#include "trainer_shim/cuda/nccl_connect.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(10);

ncclConfig_t ConfigOf(const NcclOptions& options, bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  if (options.max_ctas > 0) config.maxCTAs = options.max_ctas;
  return config;
}

// Waits until what `communicator`, which is non-blocking, has begun is done:
// until NCCL says so and `done` is true. Errors: as ConnectNccl.
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

}  // namespace

absl::StatusOr<ncclComm_t> SplitNccl(const NcclApi& nccl, ncclComm_t from,
                                     int rank, const NcclOptions& options) {
  const std::string what = "splitting a communicator";
  ncclConfig_t config = ConfigOf(options, /*blocking=*/true);
  // A thread of NCCL writes it if `from` is non-blocking, also after the wait
  // has been given up: it is kept then until the process ends.
  auto own_it = std::make_unique<ncclComm_t>(nullptr);
  ncclComm_t* const own = own_it.get();
  const ncclResult_t begun =
      nccl.CommSplit(from, /*color=*/0, rank, own, &config);
  absl::Status status = NcclStatus(nccl, begun, what);
  const auto is_made = [own] {
    return std::atomic_ref<ncclComm_t>(*own).load() != nullptr;
  };
  // NCCL may answer success before its thread has begun.
  if (status.ok() && (begun == ncclInProgress || !is_made())) {
    status = Await(nccl, from, what, is_made, options);
    if (!status.ok()) Keep(std::move(own_it));
  }
  BALLAST_RETURN_IF_ERROR(status);
  return *own;
}

absl::StatusOr<NcclPair> ConnectNccl(const NcclApi& nccl,
                                     const ncclUniqueId& id, uint32_t rank,
                                     uint32_t size,
                                     const NcclOptions& options) {
  const std::string what =
      absl::StrCat("making NCCL's communicator as rank ", rank, " of ", size);
  ncclConfig_t config = ConfigOf(options, /*blocking=*/false);
  config.splitShare = 1;
  NcclPair pair;
  absl::Status status = NcclStatus(
      nccl, nccl.CommInitRankConfig(&pair.parent, size, id, rank, &config),
      what);
  if (status.ok()) {
    status = Await(
        nccl, pair.parent, what, [] { return true; }, options);
  }
  BALLAST_RETURN_IF_ERROR(OrAbort(nccl, pair.parent, status));
  const absl::StatusOr<ncclComm_t> exchange =
      SplitNccl(nccl, pair.parent, rank, options);
  BALLAST_RETURN_IF_ERROR(
      OrAbort(nccl, pair.parent, Annotate(exchange.status(), what)));
  pair.exchange = *exchange;
  return pair;
}

}  // namespace ballast
