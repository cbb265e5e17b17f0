#ifndef BALLAST_TRAINER_SHIM_BATCH_MAKER_H_
#define BALLAST_TRAINER_SHIM_BATCH_MAKER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// The seam between the rules of a shim's calls (RankShim) and the memory that
// its batches are made in: HostBatchMaker, CudaBatchMaker. All calls come from
// the shim's thread but Abort, Cancel, Found and NoteTimes, which are for any.
// No call changes the thread's current CUDA device.
class BatchMaker {
 public:
  // Everything a maker uses. Nothing is owned; all outlives the maker.
  struct Setup {
    RoleSource* source = nullptr;
    BatchPool* pool = nullptr;
    Communicator* communicator = nullptr;         // may be null, as the next
    Communicator* tensor_communicator = nullptr;  // of the tensor peers
    uint64_t max_bytes = 0;  // RoleSource::Options::max_bytes
  };

  // Ends all work that it has given to a device, or waits for it.
  virtual ~BatchMaker() = default;

  // Whether calls take a stream, and communicators are for device memory.
  virtual bool on_device() const = 0;

  // An entry of the pool, empty. Called by the pool, after Open too.
  virtual absl::StatusOr<std::unique_ptr<BatchEntry>> MakeEntry() = 0;

  // Before all other calls but MakeEntry, Abort, Cancel and Found. Errors: as
  // CudaStatus.
  virtual absl::Status Open(const Setup& setup) = 0;

  // The next batch, in an entry of the pool; for a rank that has it from a
  // tensor peer, all but the contents of its tensors. Errors: see
  // RankShim::Next; OUT_OF_RANGE only at the end of the steps or of the data.
  virtual absl::StatusOr<BatchEntry*> Next(StreamHandle stream) = 0;

  // Sends the tensors of `entry` to the tensor peers, or, on ranks other than
  // 0, fills them. Errors: as Communicator::Broadcast.
  virtual absl::Status Broadcast(BatchEntry* entry, StreamHandle stream) = 0;

  // The first thing found wrong since, on a device or with a peer.
  virtual absl::Status Found() const { return absl::OkStatus(); }
  // Ends calls and work that wait, with `reason`, which the shim also gives to
  // the communicators and, for Cancel, to the source.
  virtual void Abort(const absl::Status& reason) = 0;
  virtual void Cancel() {}
  // Tells the source the times of batches that have become known.
  virtual void NoteTimes() {}
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_MAKER_H_
