#ifndef BALLAST_SERVER_STORAGE_CACHE_POLICY_H_
#define BALLAST_SERVER_STORAGE_CACHE_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace ballast {

// What a cache keeps, given what the schedule needs next. Pure functions.

// The position of a use that does not come.
inline constexpr uint64_t kNeverUsed = std::numeric_limits<uint64_t>::max();

// For each of `owners`, the first position from `from` to `end` - 1 at which it
// is used; kNeverUsed if it is not. `add_owners` appends the owners that a
// position uses. Stops as soon as all are found.
std::vector<uint64_t> NextUses(
    absl::Span<const uint64_t> owners, uint64_t from, uint64_t end,
    absl::FunctionRef<void(uint64_t position, std::vector<uint64_t>* owners)>
        add_owners);

// An entry of the cache.
struct CacheEntry {
  uint64_t bytes = 0;
  uint64_t next_use = kNeverUsed;  // position
};

// The entries to remove so that `wanted` bytes fit that are needed at
// `needed_at`: what is needed last goes first, the larger of equals, and
// nothing that is needed earlier than `needed_at`. Frees up to `spare` bytes
// more, so that the next call comes later. Empty if `wanted` bytes cannot be
// freed so. Numbers of entries, in the order of removal.
std::vector<size_t> ChooseVictims(absl::Span<const CacheEntry> entries,
                                  uint64_t wanted, uint64_t spare,
                                  uint64_t needed_at);

}  // namespace ballast

#endif  // BALLAST_SERVER_STORAGE_CACHE_POLICY_H_
