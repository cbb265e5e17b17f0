#ifndef BALLAST_SERVER_DELIVERY_BLOCK_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "server/delivery/block_id.h"

namespace ballast {

// A block's place in the arena (proto/block/arena_layout.h).
struct ArenaPlace {
  uint64_t offset = 0;  // of its first byte
  uint64_t generation = 0;
};

// One stream's hold on a block in memory; other streams may hold the same
// block. The destructor releases the hold, on any thread: it takes a lock for a
// moment, may begin the next block, and runs no callback. Thread-compatible.
class Block {
 public:
  struct Content {
    BlockId id;
    // The whole block (docs/block.md), from a multiple of 256. Constant while
    // the hold lasts.
    absl::Span<const uint8_t> bytes;
    // Answers the block's XXH3-64. The first call may read the whole block.
    std::function<uint64_t()> checksum;
    // Absent if the block may not be lent to a client in place.
    std::optional<ArenaPlace> place;
  };

  // `on_lend` runs at most once, `on_release` exactly once; the memory is kept
  // until then.
  Block(const Content& content, std::function<void()> on_lend,
        std::function<void()> on_release)
      : content_(content),
        on_lend_(std::move(on_lend)),
        on_release_(std::move(on_release)) {}
  ~Block() {
    if (on_release_) on_release_();
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const BlockId& id() const { return content_.id; }
  absl::Span<const uint8_t> bytes() const { return content_.bytes; }
  // XXH3-64. The first call may read the whole block, which blocks in shared
  // memory do not need.
  uint64_t checksum() const { return content_.checksum(); }
  const std::optional<ArenaPlace>& place() const { return content_.place; }

  // Lends the block, which must have a place, to the client until the hold
  // ends: the block no longer keeps its stream from the next one.
  void Lend() {
    if (on_lend_) std::exchange(on_lend_, nullptr)();
  }

 private:
  const Content content_;
  std::function<void()> on_lend_;
  const std::function<void()> on_release_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_H_
