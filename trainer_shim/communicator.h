#ifndef BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
#define BALLAST_TRAINER_SHIM_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ballast {

// Bytes for one other rank of the group, and room for bytes from one.
struct SendSlice {
  uint32_t peer = 0;
  absl::Span<const uint8_t> bytes;
};
struct ReceiveSlice {
  uint32_t peer = 0;
  absl::Span<uint8_t> bytes;
};

// The seam between a rank and the other data-parallel ranks of its module:
// NCCL, or threads of one process. One object is one rank's end of the group;
// all calls but Abort are made from one thread.
class Communicator {
 public:
  // Leaves the group: peers that exchange after it end with UNAVAILABLE.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;  // ranks of the group

  // Moves every send slice to its peer and fills every receive slice. The k-th
  // slice that rank a sends to b is the k-th that b receives from a, and both
  // have the same length: sizes follow from the schedule and are not
  // communicated. A rank sends nothing to itself. Every rank of the group must
  // call it, even with nothing to move, once for each exchange.
  //
  // Blocks until this rank's slices are filled and its own may be overwritten.
  // Errors, all final for the whole group and repeated at every further call:
  // INVALID_ARGUMENT (a peer that does not exist, lengths or counts that
  // differ, naming both ranks), UNAVAILABLE (a peer left), and what a peer gave
  // to Abort. After an error the receive slices hold anything.
  virtual absl::Status AllToAllV(absl::Span<const SendSlice> sends,
                                 absl::Span<const ReceiveSlice> receives) = 0;

  // Ends the exchanges of all ranks, also those that wait, with `reason` (the
  // first one given counts). `reason` must not be OK. From any thread.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_COMMUNICATOR_H_
