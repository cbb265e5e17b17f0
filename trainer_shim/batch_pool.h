#ifndef BALLAST_TRAINER_SHIM_BATCH_POOL_H_
#define BALLAST_TRAINER_SHIM_BATCH_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/embedding_moves.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/role_source.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

class BatchPool;

// A packed batch and its memory, reference-counted. A BatchPool creates and
// recycles it. While it is held nothing in it changes, and all calls may be
// made from any thread.
class BatchEntry {
 public:
  virtual ~BatchEntry() = default;

  virtual const BatchInfo& info() const = 0;
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Whether the sample at place `index` is a placeholder for one that could not
  // be read. Device memory: known once the device has packed the batch.
  virtual bool placeholder(size_t index) const = 0;

  // Host time of packing. 0 for device memory, where it is not known yet.
  virtual absl::Duration pack_time() const { return absl::ZeroDuration(); }

  // XXH3-128 over all tensors as 32 hexadecimal digits (ComputeDigest). Device
  // memory: copies the batch to the host and waits for `stream`.
  virtual absl::StatusOr<std::string> Digest(StreamHandle stream) const = 0;

  // States that work on `stream` reads the batch: its memory is not reused
  // before all work enqueued on `stream` by the time of release is done.
  // `stream` must exist until the release. Does nothing for host memory.
  // Errors: as CudaStatus; INVALID_ARGUMENT (cudaStreamPerThread).
  virtual absl::Status RecordStream(StreamHandle stream) = 0;

  // Adds or removes one holder. The last Release returns the memory to the pool
  // and never waits. A holder calls each at most once.
  void Retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release();
  uint32_t references() const { return references_.load(); }

 protected:
  // Lists the batch's tensors (ListTensors).
  virtual void List(std::vector<TensorView>* tensors) const = 0;
  // Called at the last Release, on its thread: notes what must be done before
  // the memory is reused or freed. Never blocks, never throws.
  virtual void OnRelease() = 0;
  // Of a released entry: whether its memory cannot be reused or freed yet,
  // since a stream that read the batch captures a CUDA graph.
  virtual bool IsBusy() { return false; }

 private:
  friend class BatchPool;

  std::atomic<uint32_t> references_{0};
  std::shared_ptr<BatchPool> pool_;  // set while held
  std::vector<TensorView> tensors_;
};

// A holder's reference to a batch: copy it to hold the batch longer, destroy or
// Reset it to release the batch. `Batch` is BatchInfo, or PackedBatch or
// DeviceBatch, which derive from it. One reference may be used by one thread at
// a time; copies of it may be used by different threads.
template <typename Batch>
class BatchRef {
 public:
  BatchRef() = default;
  // Takes over one reference that has already been counted.
  explicit BatchRef(BatchEntry* entry) : entry_(entry) {}
  BatchRef(const BatchRef& other) : entry_(other.entry_) {
    if (entry_ != nullptr) entry_->Retain();
  }
  BatchRef(BatchRef&& other) noexcept : entry_(other.Detach()) {}
  BatchRef& operator=(BatchRef other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~BatchRef() { Reset(); }

  explicit operator bool() const { return entry_ != nullptr; }
  const Batch& operator*() const {
    return static_cast<const Batch&>(entry_->info());
  }
  const Batch* operator->() const { return &**this; }
  BatchEntry* entry() const { return entry_; }

  // As BatchEntry::RecordStream.
  absl::Status RecordStream(StreamHandle stream) const {
    return entry_->RecordStream(stream);
  }
  void Reset() {
    if (entry_ != nullptr) Detach()->Release();
  }
  // Gives up the reference without releasing it: the caller must call Release.
  BatchEntry* Detach() {
    BatchEntry* entry = entry_;
    entry_ = nullptr;
    return entry;
  }

 private:
  BatchEntry* entry_ = nullptr;
};

// Casts the reference to its batch's actual type, which the caller must know.
template <typename Batch>
absl::StatusOr<BatchRef<Batch>> CastBatch(
    absl::StatusOr<BatchRef<BatchInfo>> batch) {
  if (!batch.ok()) return batch.status();
  return BatchRef<Batch>(batch->Detach());
}

// The memory of a shim's batches. Each held batch (at most `max_held`) and each
// batch in preparation has an entry. Take prefers used entries, the one
// released longest ago first, so that only as many entries as a loop needs fill
// with memory; it makes a new entry only if none is free. So there are never
// more entries than `max_held` plus the entries in preparation, plus those that
// are busy, at most `max_held` for each capture of a graph.
//
// Only the shim's thread calls it, except through BatchEntry::Release. Held
// entries outlive the shim: each keeps the pool alive.
class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  using MakeEntry =
      std::function<absl::StatusOr<std::unique_ptr<BatchEntry>>()>;

  // `max_held` is at least 1. `make` is only called by Prepare and Take.
  BatchPool(uint32_t max_held, MakeEntry make);

  // RESOURCE_EXHAUSTED if `max_held` batches are held: the message names each
  // by step, micro-batch and number of references, and says what to do.
  absl::Status CheckRoom() const;

  uint32_t max_held() const { return max_held_; }

  // Makes `count` entries for later calls of Take, for use when making them
  // there would wait for a device. Errors: as MakeEntry.
  absl::Status Prepare(uint32_t count);

  // Returns an entry to prepare a batch in. Errors: as MakeEntry.
  absl::StatusOr<BatchEntry*> Take();
  // Hands a prepared entry out, with one reference.
  BatchRef<BatchInfo> GiveOut(BatchEntry* entry);
  // Takes back an entry that was taken and not handed out. Its streams may end
  // from then on, as after a release.
  void PutBack(BatchEntry* entry);

  uint32_t held() const;     // batches that are held
  uint32_t entries() const;  // all that exist

  // Destroys all free entries; a held one is destroyed at its last Release. The
  // shim's thread calls nothing after this.
  void Close();

 private:
  friend class BatchEntry;

  absl::StatusOr<BatchEntry*> Make();
  void Return(BatchEntry* entry);
  // Destroys entries of closed pools; one that is busy at a later call.
  static void Destroy(std::vector<std::unique_ptr<BatchEntry>> entries);

  const uint32_t max_held_;
  const MakeEntry make_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<BatchEntry>> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEntry*> held_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // Used before; longest released first.
  std::vector<BatchEntry*> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEntry*> unused_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

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

  // Whether calls with `stream` can be made now: FAILED_PRECONDITION while it
  // captures a CUDA graph. Changes nothing.
  virtual absl::Status CheckStream(StreamHandle /*stream*/) const {
    return absl::OkStatus();
  }

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
  // Ends waiting calls and device work with `reason`. The shim also passes
  // `reason` to the communicators and, for Cancel, to the source.
  virtual void Abort(const absl::Status& reason) = 0;
  virtual void Cancel() {}
  // Counts of the images that passed through encoded, by what decoded them.
  virtual JpegEngineCounts decoded() const { return {}; }
  // Passes newly known times of batches to the source.
  virtual void NoteTimes() {}
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_POOL_H_
