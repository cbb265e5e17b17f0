#include "server/storage/cache_policy.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace ballast {

std::vector<uint64_t> NextUses(
    absl::Span<const uint64_t> owners, uint64_t from, uint64_t end,
    absl::FunctionRef<void(uint64_t position, std::vector<uint64_t>* owners)>
        add_owners) {
  absl::flat_hash_map<uint64_t, uint64_t> first;
  first.reserve(owners.size());
  for (const uint64_t owner : owners) first.try_emplace(owner, kNeverUsed);
  size_t missing = first.size();
  std::vector<uint64_t> used;
  for (uint64_t at = from; at < end && missing > 0; ++at) {
    used.clear();
    add_owners(at, &used);
    for (const uint64_t owner : used) {
      const auto found = first.find(owner);
      if (found == first.end() || found->second != kNeverUsed) continue;
      found->second = at;
      --missing;
    }
  }
  std::vector<uint64_t> uses;
  uses.reserve(owners.size());
  for (const uint64_t owner : owners) uses.push_back(first[owner]);
  return uses;
}

std::vector<size_t> ChooseVictims(absl::Span<const CacheEntry> entries,
                                  uint64_t wanted, uint64_t spare,
                                  uint64_t needed_at) {
  std::vector<size_t> order;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].next_use > needed_at) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (entries[a].next_use != entries[b].next_use) {
      return entries[a].next_use > entries[b].next_use;
    }
    if (entries[a].bytes != entries[b].bytes) {
      return entries[a].bytes > entries[b].bytes;
    }
    return a < b;
  });
  uint64_t freed = 0;
  size_t count = 0;
  while (count < order.size() && freed < wanted + spare) {
    freed += entries[order[count++]].bytes;
  }
  if (freed < wanted) return {};
  order.resize(count);
  return order;
}

}  // namespace ballast
