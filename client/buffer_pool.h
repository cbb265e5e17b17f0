#ifndef BALLAST_CLIENT_BUFFER_POOL_H_
#define BALLAST_CLIENT_BUFFER_POOL_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"

namespace ballast {

// Host memory that holds many blocks over time: the server's arena, mapped, or
// the client's own. It lives as long as anything refers to it, and each of its
// blocks does. Code that pins memory for a GPU can therefore pin a region once
// instead of each block, and must keep a reference while the region is pinned.
// Thread-safe.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;

  // Whole pages, page-aligned. Blocks may be anywhere in it.
  virtual absl::Span<const uint8_t> bytes() const = 0;

  // Whether it is mapped read-only: pinning it needs cudaHostRegisterReadOnly.
  virtual bool read_only() const = 0;
};

// Memory for blocks that come in chunks. Buffers are parts of one region. It is
// mapped for the first buffer and kept, since new memory costs a page fault
// every 4 KiB, and pinning costs more. A buffer that does not fit gets its own
// memory, which is freed with it. Thread-safe. Must outlive its buffers; the
// region may outlive it.
class BufferPool {
 public:
  struct Buffer {
    // The requested number of bytes, uninitialised; begin at a multiple of 256.
    absl::Span<uint8_t> bytes;
    AlignedBuffer own;  // the bytes, if they are outside the region
  };

  // `region_bytes` is rounded up to whole pages; at most 1 TiB is used.
  explicit BufferPool(uint64_t region_bytes);

  // Errors: RESOURCE_EXHAUSTED.
  absl::StatusOr<Buffer> Take(uint64_t bytes);
  // Gives back a buffer from Take.
  void Return(Buffer buffer);

  // Size of the region, mapped or not.
  uint64_t region_bytes() const { return region_bytes_; }

  // The region that holds the buffer; null if the buffer has its own memory.
  std::shared_ptr<const MemoryRegion> GetRegion(const Buffer& buffer) const;

 private:
  class Region;

  mutable Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;  // to map the region
  std::shared_ptr<const Region> region_ ABSL_GUARDED_BY(mutex_);
  ExtentAllocator places_ ABSL_GUARDED_BY(mutex_);
  const uint64_t region_bytes_;
};

// The pools of one client's fetchers. A released pool passes to the next
// fetcher that needs a region of its size, so that a rank that reconnects, or
// whose trainer opens a stream for each task, need not fault in and pin pages
// again. Thread-safe; pools may outlive it.
class BufferPools {
 public:
  BufferPools();

  // Returns an unused pool. It comes back when its last owner releases it; all
  // its buffers must have been returned by then. The latest kMaxIdle unused
  // pools are kept with their regions.
  static constexpr size_t kMaxIdle = 2;
  std::shared_ptr<BufferPool> Take(uint64_t region_bytes);

 private:
  struct Idle {
    Mutex mutex;
    std::list<std::unique_ptr<BufferPool>> pools ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Idle> idle_;
};

// Counts the bytes of a stream's live blocks. The stream's fetchers use it one
// after the other. Each grants its server the bound minus the bytes of its own
// blocks; the account also keeps a new fetcher from starting while too many
// blocks of the previous fetcher are held. Thread-safe.
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

// A server's arena (proto/block/block_layout.h), mapped for reading. Keeps the
// mapping but no open file, so no file is left, however the client ends, and
// the pages stay valid while mapped, even if the server is gone. Trusts the
// server not to shorten the file.
class ArenaMapping final : public MemoryRegion {
 public:
  // Maps the file at `path`, which must be an arena of `bytes` bytes with `id`.
  // Errors: NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (the path holds
  // another file), UNAVAILABLE; messages say what to check.
  static absl::StatusOr<std::shared_ptr<const ArenaMapping>> Open(
      const std::string& path, uint64_t bytes, const std::string& id);
  ~ArenaMapping() override;

  absl::Span<const uint8_t> bytes() const override { return {base_, bytes_}; }
  bool read_only() const override { return true; }

  const std::string& id() const { return id_; }
  // Proves to the server that this is its arena.
  const std::string& nonce() const { return nonce_; }

  // The `bytes` bytes at `offset`. Errors: INTERNAL, naming both, if no block
  // can be there.
  absl::StatusOr<absl::Span<const uint8_t>> Block(uint64_t offset,
                                                  uint64_t bytes) const;
  // The stamp of a block that Block returned.
  const ArenaStamp* stamp(uint64_t offset) const {
    return reinterpret_cast<const ArenaStamp*>(base_ + offset -
                                               kArenaStampBytes);
  }

 private:
  ArenaMapping() = default;

  const uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
  std::string id_;
  std::string nonce_;
};

// The arena of one server, mapped once and shared by all its current users. If
// it cannot be mapped, logs once why blocks come over the stream. Thread-safe.
class ArenaCache {
 public:
  // Null if the arena cannot be mapped. `server` is for the log.
  std::shared_ptr<const ArenaMapping> Get(const std::string& server,
                                          const std::string& path,
                                          uint64_t bytes,
                                          const std::string& id);

 private:
  Mutex mutex_;
  std::weak_ptr<const ArenaMapping> mapping_ ABSL_GUARDED_BY(mutex_);
  std::string failed_id_ ABSL_GUARDED_BY(mutex_);  // the last one logged
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_BUFFER_POOL_H_
