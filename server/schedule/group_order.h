#ifndef BALLAST_SERVER_SCHEDULE_GROUP_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_GROUP_ORDER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"
#include "proto/schedule/module.h"
#include "server/schedule/balance.h"

namespace ballast {

// A keyed permutation of 0..size-1 that is computed, not stored: O(1) memory
// and expected O(1) time for any element. Uses only integers, so it is the same
// on every machine. A plain value; thread-safe.
//
// A balanced Feistel network over the smallest even number of bits that holds
// `size`, applied repeatedly until the result is below `size` (cycle walking:
// Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). It
// shuffles well; it is not cryptography.
class Permutation {
 public:
  // `size` must not be 0.
  Permutation(uint64_t size, uint64_t key);

  // The image of element `i`, which is below size().
  uint64_t operator()(uint64_t i) const;

  uint64_t size() const { return size_; }

 private:
  uint64_t Encrypt(uint64_t value) const;
  template <typename Mix>
  uint64_t Encrypt(uint64_t value, Mix mix) const;

  uint64_t size_;
  uint64_t key_;
  int half_bits_;
};

// A 64-bit mixing function, the finaliser of splitmix64: every input bit
// affects every output bit.
uint64_t Mix64(uint64_t value);

// The data-parallel ranks of one module.
struct ModuleRanks {
  v1::Module module;
  uint32_t dp;  // divides the grid
  ServerOfRank server_of_rank;
  Media media = Media::kNone;  // has no effect on the numbering
};

// The samples as read by a module's ranks.
struct ModuleShards {
  ModuleRanks ranks;
  std::vector<uint32_t> reader;  // per sample
  std::vector<uint64_t> bytes;   // per sample: PayloadBytes for the module
};

// Weight of a byte that moves between ranks of different servers, relative to a
// byte that moves between ranks of the same server.
inline constexpr int64_t kBetweenServers = 4;

// Reorders the groups so that as few bytes as possible move from readers to
// owners, where bytes between servers count kBetweenServers times. Loads do not
// depend on the order, so any rank may own any group. Optimal for up to 512
// groups; beyond, within 1/512 of the bytes that could stay. Modules whose
// ranks own more than 64 groups each are ignored. The groups fill `slots`
// micro-batches of `grid` groups each, one after the other; a group may end up
// in any of them.
Groups NumberGroups(Groups groups, uint32_t slots,
                    const std::vector<ModuleShards>& shards);

// The order of one epoch of a source whose samples are cheap to read a group at
// a time, such as the row groups of Parquet files. The groups are permuted and
// cut into windows of `open_groups` groups; the last window may have fewer. The
// samples of a window are permuted among themselves. So each sample occurs
// once, a reader needs the groups of one window at a time (of two while it
// passes from one to the next), and each group once.
//
// A function of the constructor's arguments alone, with integers only. Takes 16
// bytes a group and 16 a window. Immutable; thread-safe.
class GroupEpoch {
 public:
  // `starts` has the first ordinal of each group, ascending from 0; `size` is
  // the number of samples. `open_groups` is at least 1.
  GroupEpoch(absl::Span<const uint64_t> starts, uint64_t size,
             uint32_t open_groups, uint64_t key);

  // The ordinal at `position`, which is below the number of samples. O(log
  // groups); O(log open_groups) if windows are of similar size.
  uint64_t At(uint64_t position) const;

 private:
  // A group's place in the permuted order.
  struct Slot {
    uint64_t before;  // samples in the slots before it
    uint64_t start;   // the group's first ordinal
  };

  // The window that holds `position`.
  uint64_t GetWindow(uint64_t position) const;

  uint64_t open_groups_;
  uint64_t key_;
  std::vector<Slot> slots_;
  // First samples of the windows; one more ends the last one.
  std::vector<uint64_t> windows_;
  // Stretches of 2^shift_ positions, about as long as a window: the window that
  // holds the first position of each; one more ends the last one.
  int shift_ = 0;
  std::vector<uint32_t> stretches_;
};

// The order of all epochs: each permutes the groups and the windows anew. A
// pure function of the constructor's arguments; keeps the tables of the two
// epochs used last, which take O(groups) to build. A thread keeps the last
// table that it used of up to eight orders, so that a look-up takes no lock.
// Thread-safe.
class GroupOrder {
 public:
  // As GroupEpoch; `starts` must outlive the order. Each epoch has its own key,
  // derived from `key`.
  GroupOrder(absl::Span<const uint64_t> starts, uint64_t size,
             uint32_t open_groups, uint64_t key);

  // The ordinal at `position` of `epoch`.
  uint64_t At(uint64_t epoch, uint64_t position) const;
  std::shared_ptr<const GroupEpoch> Epoch(uint64_t epoch) const;

 private:
  struct Kept {
    uint64_t epoch = 0;
    std::shared_ptr<const GroupEpoch> order;  // null: none
  };

  const uint64_t id_;  // unique among the orders of the process
  const absl::Span<const uint64_t> starts_;
  const uint64_t size_;
  const uint32_t open_groups_;
  const uint64_t key_;
  mutable Mutex mutex_;
  // The latest first.
  mutable std::array<Kept, 2> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_GROUP_ORDER_H_
