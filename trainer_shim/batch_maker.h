#ifndef BALLAST_TRAINER_SHIM_BATCH_MAKER_H_
#define BALLAST_TRAINER_SHIM_BATCH_MAKER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/embedding_moves.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/role_source.h"

namespace ballast {

// The seam between the rules of a shim's calls (RankShim) and the memory of its
// batches. Implementations: HostBatchMaker, CudaBatchMaker. Abort, Cancel,
// Found and NoteTimes may be called from any thread, all others from the shim's
// thread only. No call changes the thread's current CUDA device.
class BatchMaker {
 public:
  // Everything a maker uses. The maker owns none of it; all of it outlives the
  // maker.
  struct Setup {
    RoleSource* source = nullptr;
    BatchPool* pool = nullptr;
    Communicator* communicator = nullptr;         // may be null, as the next
    Communicator* tensor_communicator = nullptr;  // of the tensor peers
    uint64_t max_bytes = 0;  // RoleSource::Options::max_bytes
  };

  // Ends all its work on a device, or waits for it.
  virtual ~BatchMaker() = default;

  // Whether calls take a stream and communicators move device memory.
  virtual bool on_device() const = 0;

  // Creates an empty entry for the pool, which calls this before and after
  // Open.
  virtual absl::StatusOr<std::unique_ptr<BatchEntry>> MakeEntry() = 0;

  // Must come before all other calls except MakeEntry, Abort, Cancel and Found.
  // Errors: as CudaStatus.
  virtual absl::Status Open(const Setup& setup) = 0;

  // Makes the next batch in an entry of the pool. On a rank that receives from
  // a tensor peer, the contents of the tensors are left to Broadcast. Errors:
  // as RankShim::Next; OUT_OF_RANGE only at the end of the steps or of the
  // data.
  virtual absl::StatusOr<BatchEntry*> Next(StreamHandle stream) = 0;

  // Sends the tensors of `entry` to the tensor peers, or, on ranks other than
  // 0, fills them. Errors: as Communicator::Broadcast.
  virtual absl::Status Broadcast(BatchEntry* entry, StreamHandle stream) = 0;

  // Moves embeddings of `batch` over `communicator`, which may be null only if
  // nothing is sent to other ranks. Errors: as Communicator::AllToAllV.
  virtual absl::Status Move(const BatchInfo& batch, const EmbeddingMoves& moves,
                            StreamHandle stream) = 0;

  // The first error found so far on a device or with a peer; OK if there is
  // none.
  virtual absl::Status Found() const { return absl::OkStatus(); }
  // Ends waiting calls and device work with `reason`. The shim also gives it to
  // the communicators and, for Cancel, to the source.
  virtual void Abort(const absl::Status& reason) = 0;
  virtual void Cancel() {}
  // The images that travelled encoded, by what decoded them.
  virtual JpegEngineCounts decoded() const { return {}; }
  // Passes newly known times of batches to the source.
  virtual void NoteTimes() {}
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_MAKER_H_
