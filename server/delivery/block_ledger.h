#ifndef BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/extent_allocator.h"
#include "proto/schedule.pb.h"
#include "server/delivery/stream_progress.h"

namespace ballast {

// Which block: of which rank of which module, and which of its.
struct BlockKey {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint32_t dp_rank = 0;
  BlockId id;

  auto operator<=>(const BlockKey&) const = default;
};

// The books of the server's memory: which blocks there are, which streams hold
// each, where in the arena it lies, and who may hold how much more.
//
// A block is in the books once however many streams want it: the first to ask
// has it built, the others hold the same one. When the last lets go of it, it
// stays as an idle block, for a peer that is behind or a rank that connects
// again, until its place is needed: then the one that has been idle longest
// goes first.
//
//   Acquire, new            OnBuilt             last Release
//  ------------> in work ------------> held ------------------> idle --> gone
//                                        ^                        |
//                                        +---- Acquire, known ----+
//
// `memory` (serve.memory) is cut into one share for each rank that the server
// serves. A stream may hold
//   - anything, while all that it holds is lent (in its client's hands) or it
//     holds nothing: no setting, no neighbour and no client that keeps its
//     blocks can stop it;
//   - more, while what it holds, lent blocks included, stays within one share,
//     what all streams hold within `memory`, and the arena has a place.
// What a stream may hold by the first rule alone cannot be lent, so that it is
// let go of as soon as it has been sent; where it finds no room in `memory` or
// no place in the arena, it lies outside and is gone then. A block counts for
// each of its streams, and once for the whole, from Acquire until Release, and
// while it is in work.
//
// Worst case: memory + S·B bytes for S open streams and a largest block of B.
// When no block is larger than a share, every rank has one stream and the arena
// is not too scattered (extent_allocator.h), the bound is `memory` itself.
//
// Plain values, no locks: thread-compatible.
class BlockLedger {
 public:
  // `shares` of 0 counts as 1. Blocks are placed in [begin, end) of the arena.
  BlockLedger(uint64_t memory, uint32_t shares, uint64_t begin, uint64_t end);

  // What a block of `bytes` takes up: its stamp and whole pages.
  static uint64_t Footprint(uint64_t bytes);

  struct Grant {
    uint64_t block = 0;   // its number in these books; never 0
    bool is_new = false;  // the caller has it built and calls OnBuilt
    bool lendable = false;
  };
  // Stream number `stream` holds the block `key`, of `bytes` bytes, from now
  // on; nothing where it must wait until something is released, lent or built.
  // Blocks that had to go are added to `gone`: the caller forgets them before
  // the new one's memory is written. The stream does not hold it yet.
  std::optional<Grant> Acquire(uint64_t stream, const BlockKey& key,
                               uint64_t bytes, std::vector<uint64_t>* gone);

  // Of a block that is not gone: where in the arena its stamp lies, or nothing.
  std::optional<uint64_t> PlaceOf(uint64_t block) const;

  // The block, which was granted as lendable, is in the hands of the stream's
  // client now.
  void Lend(uint64_t stream, uint64_t block);

  // The stream lets go of the block. What becomes of it:
  enum class Fate {
    kStays,     // held by others, or idle
    kUnwanted,  // in work, and nobody holds it
    kGone,      // the caller forgets it
  };
  Fate Release(uint64_t stream, uint64_t block);

  // The block is complete, or (`ok` false) never will be: then nobody else
  // gets it. kStays or kGone.
  Fate OnBuilt(uint64_t block, bool ok);

  bool IsHeld(uint64_t block) const;

  // Bytes of blocks that are held or in work, and of idle ones.
  uint64_t in_use() const { return in_use_; }
  uint64_t idle() const { return idle_bytes_; }
  uint64_t share() const { return share_; }

 private:
  struct Entry {
    BlockKey key;
    uint64_t bytes = 0;  // its footprint
    std::optional<uint64_t> place;
    bool in_work = true;
    bool failed = false;
    std::map<uint64_t, bool> holders;  // stream -> whether it is lent
    // In idle_, while it is.
    std::optional<std::list<uint64_t>::iterator> idle;
  };
  struct Stream {
    uint64_t held = 0;
    uint64_t not_lent = 0;  // blocks
  };

  std::optional<uint64_t> Place(uint64_t bytes, std::vector<uint64_t>* gone);
  // After the last holder has gone and the work is done.
  Fate Settle(uint64_t block, Entry* entry);
  void Forget(uint64_t block);

  const uint64_t memory_;
  const uint64_t share_;
  ExtentAllocator arena_;
  uint64_t next_block_ = 1;
  std::map<uint64_t, Entry> blocks_;
  std::map<BlockKey, uint64_t> by_key_;
  std::map<uint64_t, Stream> streams_;  // that hold something
  std::list<uint64_t> idle_;            // longest idle first
  uint64_t in_use_ = 0;
  uint64_t idle_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_
