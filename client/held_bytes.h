#ifndef BALLAST_CLIENT_HELD_BYTES_H_
#define BALLAST_CLIENT_HELD_BYTES_H_

#include <cstdint>
#include <memory>

#include "client/batch_fetcher.h"
#include "common/mutex.h"

namespace ballast {

// Counts the bytes of a stream's blocks that are alive, whichever of the
// stream's fetchers they came from. Each fetcher bounds its own; this one keeps
// a new fetcher from starting afresh while blocks of the one before are still
// held. Thread-safe.
class HeldBytes : public std::enable_shared_from_this<HeldBytes> {
 public:
  explicit HeldBytes(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Blocks until another block may be fetched: no block from before the last
  // NextFetcher is held, or fewer than `max_bytes` in all. False after Cancel.
  bool AwaitRoom();
  // From here on, blocks come from another fetcher.
  void NextFetcher();
  // Whether the present fetcher's server has credit for a block as large as any
  // that it has sent.
  bool MaySend();
  void Cancel();

  // `block`, counted until it is destroyed.
  std::unique_ptr<FetchedBlock> Count(std::unique_ptr<FetchedBlock> block);

 private:
  class CountedBlock;
  void Release(uint64_t bytes, uint64_t fetcher);

  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of these, from the present fetcher.
  uint64_t held_of_fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t largest_block_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_HELD_BYTES_H_
