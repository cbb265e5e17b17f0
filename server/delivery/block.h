#ifndef BALLAST_SERVER_DELIVERY_BLOCK_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "server/delivery/block_pool.h"
#include "server/delivery/stream_progress.h"

namespace ballast {

// One block in memory. Destroying it gives its memory back, on any thread, and
// may set the next block going. Thread-compatible.
class Block {
 public:
  // `buffer` comes from `pool` and holds at least `size` bytes. `on_release`
  // runs once, after the memory is back in the pool.
  Block(BlockId id, std::shared_ptr<BlockPool> pool, AlignedBuffer buffer,
        uint64_t size, std::function<void()> on_release)
      : id_(id),
        pool_(std::move(pool)),
        buffer_(std::move(buffer)),
        size_(size),
        on_release_(std::move(on_release)) {}
  ~Block() {
    pool_->GiveBack(std::move(buffer_));
    if (on_release_) on_release_();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const BlockId& id() const { return id_; }

  // The whole block (docs/block.md); begins at a multiple of 256.
  absl::Span<const uint8_t> bytes() const {
    return buffer_.bytes().first(size_);
  }
  absl::Span<uint8_t> mutable_bytes() { return buffer_.bytes().first(size_); }

  // XXH3-64 of bytes(); set when the block is complete.
  uint64_t checksum() const { return checksum_; }
  void set_checksum(uint64_t checksum) { checksum_ = checksum; }

 private:
  const BlockId id_;
  const std::shared_ptr<BlockPool> pool_;
  AlignedBuffer buffer_;
  const uint64_t size_;
  uint64_t checksum_ = 0;
  const std::function<void()> on_release_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_H_
