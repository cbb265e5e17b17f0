#include "server/image/table_cache.h"

namespace ballast {

const QuadTable* TableCache::Find(QuadFormat format,
                                  const Resampling& resampling, uint32_t source,
                                  uint32_t output) {
  ++uses_;
  for (Slot& slot : slots_) {
    if (slot.last_use != 0 && slot.table.source() == source &&
        slot.table.output() == output && slot.table.format() == format &&
        slot.table.resampling() == resampling) {
      slot.last_use = uses_;
      return &slot.table;
    }
  }
  // Reuses the memory of other tables well before the limit is reached.
  Slot* slot = Oldest(bytes() < kMostBytes / 2);
  slot->table.Build(format, resampling, source, output);
  slot->last_use = uses_;
  while (bytes() > kMostBytes) {
    Slot* oldest = Oldest(false);
    if (oldest->last_use == 0) break;
    *oldest = Slot();
  }
  return &slot->table;
}

// The slot used longest ago, among empty and filled ones, or among filled ones
// only if there are any. Never one of the last two found: they are still valid.
TableCache::Slot* TableCache::Oldest(bool or_empty) {
  Slot* oldest = nullptr;
  Slot* empty = nullptr;
  for (Slot& slot : slots_) {
    if (slot.last_use == 0) {
      if (empty == nullptr) empty = &slot;
    } else if (slot.last_use + 1 < uses_ &&
               (oldest == nullptr || slot.last_use < oldest->last_use)) {
      oldest = &slot;
    }
  }
  // All slots but two, at most, are empty or old.
  if (oldest == nullptr || (or_empty && empty != nullptr)) return empty;
  return oldest;
}

size_t TableCache::bytes() const {
  size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.table.bytes();
  return bytes;
}

}  // namespace ballast
