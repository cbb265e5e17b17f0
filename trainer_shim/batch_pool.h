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
#include "trainer_shim/batch_info.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/tensor_list.h"

namespace ballast {

class BatchPool;

// A packed batch and its memory, counted by its holders. Made and recycled by a
// BatchPool. While somebody holds it nothing of it changes, and all calls may
// be made from any thread.
class BatchEntry {
 public:
  virtual ~BatchEntry() = default;

  virtual const BatchInfo& info() const = 0;
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Whether the sample at place `index` stands in for one that could not be
  // read. Device memory: known once the device has packed the batch.
  virtual bool placeholder(size_t index) const = 0;

  // Host time that packing took; 0 in device memory, where it is not known yet.
  virtual absl::Duration pack_time() const { return absl::ZeroDuration(); }

  // XXH3-128 over all tensors as 32 hexadecimal digits (DigestOf). Device
  // memory: copies the batch to the host and waits for `stream`.
  virtual absl::StatusOr<std::string> Digest(StreamHandle stream) const = 0;

  // Work on `stream` reads the batch: its memory is not used again before all
  // that `stream` has been given by the time of release is done. `stream` must
  // live until then. Does nothing for host memory. Errors: as CudaStatus.
  virtual absl::Status RecordStream(StreamHandle stream) = 0;

  // One holder more; one holder fewer. The last Release gives the memory back
  // without waiting for anything. A holder calls each at most once.
  void Retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release();
  uint32_t references() const { return references_.load(); }

 protected:
  // Lists the batch's tensors (tensor_list.h).
  virtual void List(std::vector<TensorView>* tensors) const = 0;
  // The last holder has let go, on its thread: notes what must be done before
  // the memory is used again or freed. Never blocks, never throws.
  virtual void OnRelease() = 0;

 private:
  friend class BatchPool;

  std::atomic<uint32_t> references_{0};
  std::shared_ptr<BatchPool> pool_;  // set while held
  std::vector<TensorView> tensors_;
};

// A holder's reference to a batch: copy it to hold the batch longer, destroy or
// Reset it to let go. `Batch` is BatchInfo, or PackedBatch or DeviceBatch,
// which derive from it. A reference is for one thread at a time, copies of it
// for different ones.
template <typename Batch>
class BatchRef {
 public:
  BatchRef() = default;
  // Takes over one reference, which has been counted.
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
  // Hands the reference on: whoever gets it calls Release.
  BatchEntry* Detach() {
    BatchEntry* entry = entry_;
    entry_ = nullptr;
    return entry;
  }

 private:
  BatchEntry* entry_ = nullptr;
};

// The reference with its batch's own type, which is the caller's to know.
template <typename Batch>
absl::StatusOr<BatchRef<Batch>> CastBatch(
    absl::StatusOr<BatchRef<BatchInfo>> batch) {
  if (!batch.ok()) return batch.status();
  return BatchRef<Batch>(batch->Detach());
}

// The memory of a shim's batches. Batches that are held, at most `max_held`,
// and those in preparation each have an entry. Entries that have been used
// before are used again first, the one released longest ago before the others,
// so that only as many fill with memory as a loop needs; others are made when
// there is none. So there are never more than `max_held` and those in
// preparation.
//
// One thread, the shim's, calls all but what BatchEntry::Release does. Held
// entries outlive the shim: each keeps the pool.
class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  using MakeEntry =
      std::function<absl::StatusOr<std::unique_ptr<BatchEntry>>()>;

  // `max_held` is at least 1. `make` is only called by Prepare and Take.
  BatchPool(uint32_t max_held, MakeEntry make);

  // RESOURCE_EXHAUSTED where `max_held` batches are held: names each by step,
  // micro-batch and number of references, and says what to do.
  absl::Status CheckRoom() const;

  uint32_t max_held() const { return max_held_; }

  // Makes `count` entries for Take to come, where making them later would wait
  // for a device. Errors: as MakeEntry.
  absl::Status Prepare(uint32_t count);

  // An entry to prepare a batch in. Errors: as MakeEntry.
  absl::StatusOr<BatchEntry*> Take();
  // Hands a prepared entry out, with one reference.
  BatchRef<BatchInfo> GiveOut(BatchEntry* entry);
  // Takes back an entry that was taken and not handed out.
  void PutBack(BatchEntry* entry);

  uint32_t held() const;     // batches that somebody holds
  uint32_t entries() const;  // all that exist

  // Destroys all entries that nobody holds; held ones go with their last
  // holder. No other call of the shim's thread follows.
  void Close();

 private:
  friend class BatchEntry;

  absl::StatusOr<BatchEntry*> Make();
  void Return(BatchEntry* entry);

  const uint32_t max_held_;
  const MakeEntry make_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<BatchEntry>> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEntry*> held_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // Used before; the one released longest ago first.
  std::vector<BatchEntry*> free_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEntry*> unused_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_POOL_H_
