#ifndef BALLAST_CLIENT_FETCH_ROOM_H_
#define BALLAST_CLIENT_FETCH_ROOM_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "client/batch_fetcher.h"
#include "common/mutex.h"

namespace ballast {

// Bounds the bytes of blocks over all servers of a stream. A fetch ahead is let
// in if a block of the largest size fits beside it: the one that the consumer
// waits for, which is let in at any time. Streams have numbers, above 0.
// Thread-safe.
class FetchRoom {
 public:
  explicit FetchRoom(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Waits until `stream` may fetch a block. False once `*cancelled`.
  bool Enter(uint64_t stream, const std::atomic<bool>* cancelled);
  // The fetch is over; a block of `bytes` is held from now on, 0: none.
  void Leave(uint64_t stream, uint64_t bytes);
  void Release(uint64_t bytes);
  // The consumer waits for a block of `stream`, which has none; 0: it does not
  // wait.
  void Need(uint64_t stream);
  void WakeAll();

 private:
  bool Fits(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fetching_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t largest_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t needed_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Fetches by `fetcher` within the room, in which each block counts until it is
// destroyed. `stream` is the fetcher's number in the room.
std::unique_ptr<BatchFetcher> FetchWithin(
    std::shared_ptr<FetchRoom> room, uint64_t stream,
    std::unique_ptr<BatchFetcher> fetcher);

}  // namespace ballast

#endif  // BALLAST_CLIENT_FETCH_ROOM_H_
