#include "server/schedule/light_ranks.h"

#include <limits>

namespace ballast {
namespace {

constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

}  // namespace

LightRanks::LightRanks(uint32_t ranks) : at_(ranks, kAbsent) {
  heap_.reserve(ranks);
}

void LightRanks::Set(uint32_t rank, int64_t load) {
  if (at_[rank] == kAbsent) {
    at_[rank] = heap_.size();
    heap_.emplace_back();
  }
  Place(at_[rank], {load, rank});
}

void LightRanks::Remove(uint32_t rank) {
  const uint32_t hole = std::exchange(at_[rank], kAbsent);
  if (hole == kAbsent) return;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (hole < heap_.size()) Place(hole, last);
}

LightRanks::List LightRanks::Lightest(size_t most) const {
  List list;
  // Those that may come next: the top, then the children of those listed.
  std::array<uint32_t, kMostListed + 1> next;
  next[0] = 0;
  size_t open = heap_.empty() ? 0 : 1;
  while (list.count < most && open > 0) {
    size_t first = 0;
    for (size_t i = 1; i < open; ++i) {
      if (heap_[next[i]] < heap_[next[first]]) first = i;
    }
    const uint32_t found = next[first];
    list.ranks[list.count++] = heap_[found].second;
    next[first] = next[--open];
    for (const uint32_t child : {2 * found + 1, 2 * found + 2}) {
      if (child < heap_.size()) next[open++] = child;
    }
  }
  return list;
}

void LightRanks::Place(uint32_t at, const Entry& entry) {
  while (at > 0 && entry < heap_[(at - 1) / 2]) {
    Write(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  for (uint32_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
    if (!(heap_[child] < entry)) break;
    Write(at, heap_[child]);
    at = child;
  }
  Write(at, entry);
}

}  // namespace ballast
