#ifndef BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/aligned_buffer.h"
#include "proto/schedule.pb.h"
#include "server/delivery/block.h"

namespace ballast {

// A role of a job: one data-parallel rank of one module, for one split.
struct RoleKey {
  v1::Split split = v1::SPLIT_TRAIN;
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint32_t dp_rank = 0;

  auto operator<=>(const RoleKey&) const = default;
};

// A block of a job: its role and its position in the role's stream.
struct BlockKey {
  v1::Module module = v1::MODULE_UNSPECIFIED;
  uint32_t dp_rank = 0;
  BlockId id;
  // True if the rank requested `direct` although balance.delivery is another.
  bool asked_direct = false;
  v1::Split split = v1::SPLIT_TRAIN;

  RoleKey role() const { return {split, module, dp_rank}; }
  auto operator<=>(const BlockKey&) const = default;
};

// Accounts for the server's memory: which blocks exist, which streams hold
// them, where each is in the arena, and how much more a stream may hold.
//
// A block is recorded once, however many streams want it: the first stream to
// ask has it built, the others share it. When its last holder releases it, it
// stays as an idle block, for a peer that lags or a rank that reconnects.
// When its place is needed, the block that has been idle longest is evicted
// first.
//
//   Acquire, new            OnBuilt             last Release
//  ------------> in work ------------> held ------------------> idle --> gone
//                                        ^                        |
//                                        +---- Acquire, known ----+
//
// `memory` (serve.memory) is divided among the roles that have an open stream,
// one share for each: streams of one split that are not read for a while, such
// as validation's, cannot take the shares of another split. All streams of a
// role use its share together, however many a client opens. A stream may hold
//   - any block, while it holds nothing or all that it holds is lent (in its
//     client's hands): no setting, no neighbour and no client that keeps its
//     blocks can stop it;
//   - more, while the blocks of its role, lent ones included, stay within one
//     share, the blocks of all roles within `memory`, and the arena has a
//     place.
// When a role comes, shares shrink: a role that holds more than its share gives
// back the blocks that its clients need last (AboveShare). What a client has in
// hand cannot be taken back, so lent blocks of a role stay within the part that
// it has when all roles have streams; blocks beyond are copied to the client
// (Promise). Without room in `memory` or a place in the arena, a block's memory
// is outside the arena, and it is gone once released. A block counts once for
// its role, from the first Acquire until the last Release, and once in total,
// also while it is being built.
//
// Worst case: memory + S·B bytes for S open streams and a largest block of B.
// The bound is `memory` itself if no block is larger than a share, the streams
// of a role are near one another and the arena is not too fragmented
// (aligned_buffer.h).
//
// Plain values, no locks: thread-compatible.
class BlockLedger {
 public:
  // `roles` is the number of roles that may have streams; 0 counts as 1. Blocks
  // are placed in [begin, end) of the arena.
  BlockLedger(uint64_t memory, uint32_t roles, uint64_t begin, uint64_t end);

  // Count the open streams of a role, before its first Acquire and after its
  // last Release.
  void OpenStream(const RoleKey& role);
  void CloseStream(const RoleKey& role);

  // Bytes that a block of `bytes` takes up: its stamp and whole pages.
  static uint64_t Footprint(uint64_t bytes);

  struct Grant {
    uint64_t block = 0;   // its number in this ledger; never 0
    bool is_new = false;  // the caller must build it and call OnBuilt
  };
  // Makes `stream` hold the block `key`, of `bytes` bytes, which it does not
  // hold yet. Returns nullopt if it must wait until a block is released, lent
  // or built. Blocks that were evicted are added to `gone`: the caller forgets
  // them before the new block's memory is written.
  std::optional<Grant> Acquire(uint64_t stream, const BlockKey& key,
                               uint64_t bytes, std::vector<uint64_t>* gone);

  // Whether a new block of `bytes` fits in `memory`, beside those that are
  // held.
  bool HasRoom(uint64_t bytes) const;
  // The role that holds most above its share, if a new block of `bytes` is
  // within the share of `role`. Roles in `except` are passed over.
  std::optional<RoleKey> AboveShare(const RoleKey& role, uint64_t bytes,
                                    const std::set<RoleKey>& except) const;

  // The place of the block's stamp in the arena; nullopt if it is outside the
  // arena or gone.
  std::optional<uint64_t> GetPlace(uint64_t block) const;

  // Whether the block, which the stream hands out, may be lent to its client:
  // it is in the arena, and with it the role's promised blocks stay within
  // `memory` / `roles`, or it is the only one.
  bool Promise(uint64_t stream, uint64_t block);
  // Lends the block, which was promised, to the stream's client.
  void Lend(uint64_t stream, uint64_t block);

  // Ends the stream's hold on the block. Returns the block's fate:
  enum class Fate {
    kStays,     // held by others, or idle
    kUnwanted,  // being built, and nobody holds it
    kGone,      // the caller forgets it
  };
  Fate Release(uint64_t stream, uint64_t block);

  // Records that the block is complete or, if not `ok`, has failed: then no
  // other stream gets it. Returns kStays or kGone.
  Fate OnBuilt(uint64_t block, bool ok);

  bool IsHeld(uint64_t block) const;

  // Bytes of blocks that are held or being built, and of idle blocks.
  uint64_t in_use() const { return in_use_; }
  uint64_t idle() const { return idle_bytes_; }
  // Bytes of a role: `memory` divided among the roles with open streams.
  uint64_t share() const;

 private:
  enum class Hold { kHeld, kPromised, kLent };
  struct LedgerBlock {
    BlockKey key;
    uint64_t bytes = 0;  // its footprint
    std::optional<uint64_t> place;
    bool in_work = true;
    bool failed = false;
    std::map<uint64_t, Hold> holders;  // by stream
    int promised = 0;                  // of the holders, or lent
    // Position in idle_ while the block is idle.
    std::optional<std::list<uint64_t>::iterator> idle;
  };
  // Numbers of blocks.
  struct Holdings {
    uint64_t held = 0;
    uint64_t not_lent = 0;
  };

  struct RoleHoldings {
    uint64_t streams = 0;   // open
    uint64_t held = 0;      // bytes
    uint64_t promised = 0;  // of them
  };

  std::optional<uint64_t> Place(uint64_t bytes, std::vector<uint64_t>* gone);
  void ForgetIfEmpty(std::map<RoleKey, RoleHoldings>::iterator role);
  // Makes a built block without holders idle, or removes it.
  Fate Settle(uint64_t number, LedgerBlock* block);
  void Forget(uint64_t number);

  const uint64_t memory_;
  const uint64_t lent_share_;  // bytes that a role's clients may keep
  ExtentAllocator arena_;
  uint64_t next_block_ = 1;
  std::map<uint64_t, LedgerBlock> blocks_;
  std::map<BlockKey, uint64_t> by_key_;
  std::map<uint64_t, Holdings> streams_;   // streams that hold a block
  std::map<RoleKey, RoleHoldings> roles_;  // with streams or blocks
  uint64_t open_roles_ = 0;
  uint64_t held_ = 0;         // bytes, by any role
  std::list<uint64_t> idle_;  // longest idle first
  uint64_t in_use_ = 0;
  uint64_t idle_bytes_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_LEDGER_H_
