#ifndef BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/loader_client.h"

namespace ballast {

// The first of `servers`, at least one, that serves: the rendezvous of ranks,
// over NCCL and over Gloo, is at this server. If none serves, the first, which
// Rendezvous then waits for. Asks one server after the other; a server that
// hangs takes 10 s.
LoaderClient* MeetingServer(
    const std::vector<std::unique_ptr<LoaderClient>>& servers);

// A queue of work on a device: a cudaStream_t. Null for host memory.
using StreamHandle = void*;

// Bytes to send to one other rank of the group, and space for bytes received
// from one. Host or device memory, according to the communicator.
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
// process (in_process_communicator.h, in_process_device_communicator.h), Gloo
// (gloo_communicator.h, which says how its errors differ) and NCCL
// (nccl_communicator.h). One object is one rank's end of the group; all
// calls except Check and Abort must come from one thread.
//
// A communicator for host memory moves bytes within the call: it blocks until
// this rank's part is done and ignores the stream. A communicator for device
// memory enqueues work on `stream`, a stream of the calling thread's current
// device, and does not wait for the device; the slices must stay valid until
// that work is done.
class Communicator {
 public:
  // Leaves the group. Host memory: peers that exchange after it end with
  // UNAVAILABLE. Device memory: may wait for the other ranks to leave too; if
  // they may never do so, call Abort first.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;  // ranks of the group
  // Whether slices are in device memory.
  virtual bool on_device() const = 0;

  // Moves every send slice to its peer and fills every receive slice. The k-th
  // slice that rank a sends to b is the k-th that b receives from a, and both
  // have the same length: sizes follow from the schedule and are not
  // communicated. A rank sends nothing to itself. Every rank of the group makes
  // the same calls in the same order, even with nothing to move.
  //
  // Errors are final for this end (host memory: for the whole group) and
  // repeated at every further call: INVALID_ARGUMENT (a peer that does not
  // exist; lengths or counts that differ, naming both ranks), UNAVAILABLE (a
  // peer left), INTERNAL (NCCL's), and the reason given to Abort. After an
  // error the contents of the receive slices are undefined.
  virtual absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                                 absl::Span<const ReceiveSlice> receives,
                                 StreamHandle stream) = 0;

  // Copies the slices of rank `root` into the slices of every other rank; all
  // ranks give the same root, and the same number and lengths of slices. Rank
  // `root` only reads its slices. The default implementation calls AllToAllV.
  // Errors: as AllToAllV; INVALID_ARGUMENT also if the root does not exist.
  virtual absl::Status Broadcast(uint32_t root,
                                 absl::Span<const absl::Span<uint8_t>> slices,
                                 StreamHandle stream);

  // The first error so far on the device or with a peer; OK if there is none.
  // Never waits. From any thread.
  virtual absl::Status Check() = 0;

  // Ends calls and device work that wait for peers, and every later call, with
  // `reason`, which must not be OK; the first reason given counts. Host memory:
  // ends the calls of all ranks of the group. From any thread.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
