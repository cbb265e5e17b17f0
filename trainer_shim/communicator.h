#ifndef BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ballast {

// A queue of work on a device: a cudaStream_t. Null for host memory.
using StreamHandle = void*;

// Bytes for one other rank of the group, and room for bytes from one: in host
// or in device memory, as the communicator says.
struct SendSlice {
  uint32_t peer = 0;
  absl::Span<const uint8_t> bytes;
};
struct ReceiveSlice {
  uint32_t peer = 0;
  absl::Span<uint8_t> bytes;
};

// The seam between a rank and the other ranks of a group: the data-parallel
// ranks of its module, or its tensor peers. Implementations: threads of one
// process (in_process_communicator.h, in_process_device_communicator.h) and
// NCCL (nccl_communicator.h). One object is one rank's end of the group; all
// calls but Check and Abort are made from one thread.
//
// A communicator for host memory moves bytes within the call: it blocks until
// this rank's part is done, and takes no stream. One for device memory enqueues
// the work on `stream`, of the calling thread's current device, and does not
// wait for the device; the slices must stay until the device has done the work.
class Communicator {
 public:
  // Leaves the group. Host memory: peers that exchange after it end with
  // UNAVAILABLE. Device memory: may wait for the other ranks to leave too; call
  // Abort before where they may not come.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;  // ranks of the group
  // Whether slices are in device memory.
  virtual bool on_device() const = 0;

  // Moves every send slice to its peer and fills every receive slice. The k-th
  // slice that rank a sends to b is the k-th that b receives from a, and both
  // have the same length: sizes follow from the schedule and are not
  // communicated. A rank sends nothing to itself. Every rank of the group makes
  // the same calls in the same order, also those with nothing to move.
  //
  // Errors are final for this end (host memory: for the whole group) and
  // repeated at every further call: INVALID_ARGUMENT (a peer that does not
  // exist; lengths or counts that differ, naming both ranks), UNAVAILABLE (a
  // peer left), INTERNAL (NCCL's), and the reason given to Abort. After an
  // error the receive slices hold anything.
  virtual absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                                 absl::Span<const ReceiveSlice> receives,
                                 StreamHandle stream) = 0;

  // Copies the slices of rank `root` to those of every other rank, whose number
  // and lengths are the same. All ranks call it with the same root. Rank `root`
  // only reads its slices. Made of AllToAllV unless overridden. Errors: as
  // AllToAllV; INVALID_ARGUMENT also for a root that does not exist.
  virtual absl::Status Broadcast(uint32_t root,
                                 absl::Span<const absl::Span<uint8_t>> slices,
                                 StreamHandle stream);

  // The first thing that has gone wrong since, on the device or with a peer; OK
  // where nothing has. Never waits. From any thread.
  virtual absl::Status Check() = 0;

  // Ends the calls, and the work on the device, that wait for peers, and every
  // later call, with `reason` (the first one given counts), which must not be
  // OK. Host memory: of all ranks of the group. From any thread.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
