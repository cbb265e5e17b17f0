#ifndef BALLAST_CLIENT_HELD_BYTES_H_
#define BALLAST_CLIENT_HELD_BYTES_H_

#include <cstdint>
#include <memory>

#include "common/mutex.h"

namespace ballast {

// Counts the bytes of a stream's live blocks. The stream's fetchers use it one
// after the other. Each grants its server the bound minus the bytes of its own
// blocks; the account also keeps a new fetcher from starting while too many
// blocks of the one before are held. Thread-safe.
class HeldBytes {
 public:
  // The bytes of one block, held until this is destroyed or released.
  class Share {
   public:
    Share(std::shared_ptr<HeldBytes> account, uint64_t fetcher, uint64_t bytes);
    ~Share() { Release(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    void Release();

   private:
    std::shared_ptr<HeldBytes> account_;  // null: released
    const uint64_t fetcher_;
    const uint64_t bytes_;
  };

  explicit HeldBytes(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Registers a new fetcher and returns its number, which its blocks' shares
  // carry.
  uint64_t NextFetcher();
  // Largest block that the current fetcher's server may begin; no limit while
  // none of the fetcher's blocks is held.
  uint64_t Allowance();
  // Whether Allowance covers a block as large as the largest so far.
  bool MaySend();
  // Blocks until another block may be fetched: no block of an earlier fetcher
  // is held, or fewer than `max_bytes` are held in total. False after Cancel.
  bool AwaitRoom();
  void Cancel();

 private:
  uint64_t AllowanceLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  // The part of held_ that belongs to the current fetcher.
  uint64_t held_of_fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t largest_block_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_HELD_BYTES_H_
