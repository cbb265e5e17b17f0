#ifndef BALLAST_CLIENT_HELD_BYTES_H_
#define BALLAST_CLIENT_HELD_BYTES_H_

#include <cstdint>
#include <memory>

#include "common/mutex.h"

namespace ballast {

// The one account of the bytes of a stream's blocks that are alive. Each of the
// stream's fetchers, one after the other, grants its server the bound less what
// its own blocks hold; the account also keeps a new fetcher from starting
// afresh while blocks of the one before are still held. Thread-safe.
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

  // Begins a fetcher and returns its number, which its blocks' shares carry.
  uint64_t NextFetcher();
  // Largest block that the present fetcher's server may begin: any, while none
  // of the fetcher's blocks is held.
  uint64_t Allowance();
  // Whether that covers a block as large as any so far.
  bool MaySend();
  // Blocks until another block may be fetched: no block of an earlier fetcher
  // is held, or fewer than `max_bytes` in all. False after Cancel.
  bool AwaitRoom();
  void Cancel();

 private:
  uint64_t AllowanceLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t max_bytes_;
  Mutex mutex_;
  CondVar changed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  // The part of held_ that came by the present fetcher.
  uint64_t held_of_fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fetcher_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t largest_block_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_HELD_BYTES_H_
