#ifndef BALLAST_SERVER_DELIVERY_DECODE_BUDGET_H_
#define BALLAST_SERVER_DELIVERY_DECODE_BUDGET_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace ballast {

// The memory for decoding that all threads and helper processes of a server
// share (serve.decode_memory). Before decoding, a caller takes the memory that
// the file's header calls for. Callers are served in the order of their calls:
// a large image waits for the callers before it, and the callers after it wait
// for the large one, so none waits forever. While a caller holds memory, it
// takes nothing else that it could wait for, so there is no deadlock.
// Thread-safe.
class DecodeBudget {
 public:
  // Memory that is taken until this goes out of scope. Movable.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          bytes_(other.bytes_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (budget_ != nullptr) budget_->Return(bytes_);
    }

   private:
    friend class DecodeBudget;
    Lease(DecodeBudget* budget, uint64_t bytes)
        : budget_(budget), bytes_(bytes) {}

    DecodeBudget* budget_;
    uint64_t bytes_;
  };

  struct Usage {
    uint64_t in_use = 0;   // bytes
    uint64_t waiting = 0;  // callers of Take
  };

  // `bytes`: limit on all leases together.
  explicit DecodeBudget(uint64_t bytes) : bytes_(bytes) {}

  // Takes `bytes`, or the whole budget if `bytes` is more. Blocks until they
  // are free. Errors: CANCELLED (Close).
  absl::StatusOr<Lease> Take(uint64_t bytes);

  // Ends all waits; later calls of Take fail at once. Leases are not affected.
  void Close();

  uint64_t bytes() const { return bytes_; }
  Usage usage() const;

 private:
  void Return(uint64_t bytes);

  const uint64_t bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;   // number of the next caller
  uint64_t first_ ABSL_GUARDED_BY(mutex_) = 0;  // the next to serve
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// The budget for serve.decode_memory: itself, or for 0 (`auto`) a quarter of
// `machine_bytes`; at least kMaxImageMemory.
uint64_t DecodeBudgetBytes(uint64_t decode_memory, uint64_t machine_bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_DECODE_BUDGET_H_
