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

// The only place where NCCL's errors become statuses. `what` says what was
// tried. Codes: INVALID_ARGUMENT (ncclInvalidArgument, ncclInvalidUsage),
// UNAVAILABLE (ncclRemoteError: a peer left), INTERNAL (all else). What makes a
// communicator answers the errors of LoadNccl (nccl_api.h), too.
absl::Status NcclStatus(ncclResult_t result, absl::string_view what);

struct NcclOptions {
  // Most thread blocks (CTAs) that an exchange takes from the device, which
  // leaves the others to the trainer's kernels. 0: as NCCL sees fit.
  int max_ctas = 0;
};

// The id that Rendezvous carries: an ncclUniqueId's bytes. One rank makes it.
// Errors: as NcclStatus.
absl::StatusOr<std::string> MakeNcclId();

// A communicator of the shim's own, for the calling thread's current device.
// Blocks until all `size` ranks have called it with the same id. Two ranks of a
// group never share a device. Errors: INVALID_ARGUMENT (an id of another
// length, a rank outside the group), as NcclStatus.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclOptions& options);

// The same, met through a server (LoaderService.Rendezvous): no MPI, no
// address. `group` names the ranks that meet, in the whole job; `run` names
// this start of the job and may be empty. Any server of the job will do.
// Errors: as LoaderClient::Rendezvous too; DEADLINE_EXCEEDED when not all came.
absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclOptions& options,
    const std::string& run = "");

// One made from the trainer's own communicator of the same ranks, which stays
// the trainer's and whole: what the shim aborts is its own. A collective call,
// like ncclCommSplit, which it is. Errors: as NcclStatus.
absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclCommunicator(
    ncclComm_t trainers, const NcclOptions& options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_
