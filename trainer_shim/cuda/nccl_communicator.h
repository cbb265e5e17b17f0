#ifndef BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/cuda/nccl_connect.h"

namespace ballast {

// Creates the id that Rendezvous carries: the bytes of an ncclUniqueId. One
// rank of a group calls it. Errors, also of the functions below: as LoadNccl
// and NcclStatus (nccl_connect.h).
absl::StatusOr<std::string> MakeNcclId();

// Creates a communicator on the calling thread's current device. Blocks until
// all `size` ranks have called it with the same id, for at most twice
// options.connect_timeout. No two ranks of a group may share a device. Further
// errors: as ConnectNccl; INVALID_ARGUMENT (an id of the wrong length, a rank
// outside the group).
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclOptions& options);

// Wraps and owns communicators that exist. `nccl` is not owned and outlives the
// result.
std::unique_ptr<Communicator> NcclCommunicatorOver(const NcclApi* nccl,
                                                   const NcclPair& pair,
                                                   uint32_t rank,
                                                   uint32_t size);

// Creates a communicator whose ranks meet through a server
// (LoaderService.Rendezvous), without MPI and without an address. `group` names
// the group, uniquely in the job; `run` names this start of the job and may be
// empty. Any server of the job may be used. `timeout` bounds the rendezvous,
// and replaces options.connect_timeout. Further errors: as
// LoaderClient::Rendezvous and ConnectNccl; DEADLINE_EXCEEDED (not all ranks
// came).
absl::StatusOr<std::unique_ptr<Communicator>> MeetNcclCommunicator(
    LoaderClient* server, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclOptions& options,
    const std::string& run = "");

// Splits a communicator off the trainer's, for the same ranks. The trainer
// keeps its own, which the shim never aborts. A collective call
// (ncclCommSplit), which may block without end unless the trainer's
// communicator is non-blocking. Its splitShare must be 0, NCCL's default.
// Further errors: as SplitNccl.
absl::StatusOr<std::unique_ptr<Communicator>> BorrowNcclCommunicator(
    ncclComm_t trainers, const NcclOptions& options);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NCCL_COMMUNICATOR_H_
