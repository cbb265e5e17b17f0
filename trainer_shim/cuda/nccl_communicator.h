#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "trainer_shim/communicator.h"

namespace ballast {

// The only place where NCCL's errors become statuses. `what` names the failed
// operation. Codes: INVALID_ARGUMENT (ncclInvalidArgument, ncclInvalidUsage),
// UNAVAILABLE (ncclRemoteError: a peer left), INTERNAL (all else). The
// functions below that create something also return the errors of LoadNccl
// (nccl_api.h).
absl::Status NcclStatus(ncclResult_t result, absl::string_view what);

struct NcclOptions {
  // Most thread blocks (CTAs) that an exchange takes from the device; the rest
  // stay free for the trainer's kernels. 0: NCCL decides.
  int max_ctas = 0;
};

// Creates the id that Rendezvous carries: the bytes of an ncclUniqueId. One
// rank of a group calls it. Errors: as NcclStatus.
absl::StatusOr<std::string> MakeNcclId();

// Creates a communicator on the calling thread's current device. Blocks until
// all `size` ranks have called it with the same id. No two ranks of a group may
// share a device. Errors: as NcclStatus; INVALID_ARGUMENT (an id of the wrong
// length, a rank outside the group).
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclOptions& options);

// Creates one whose ranks meet through a server (LoaderService.Rendezvous),
// without MPI and without an address. `group` names the group, uniquely in the
// job; `run` names this start of the job and may be empty. Any server of the
// job may be used. Further errors: as LoaderClient::Rendezvous;
// DEADLINE_EXCEEDED (not all ranks came).
absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclOptions& options,
    const std::string& run = "");

// Splits one off the trainer's own communicator of the same ranks, which stays
// the trainer's and intact: the shim only ever aborts the split one. A
// collective call, as it calls ncclCommSplit. Errors: as NcclStatus.
absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclCommunicator(
    ncclComm_t trainers, const NcclOptions& options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_
