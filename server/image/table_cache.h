#ifndef BALLAST_SERVER_IMAGE_TABLE_CACHE_H_
#define BALLAST_SERVER_IMAGE_TABLE_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "server/image/quad_table.h"
#include "proto/image/resample_weights.h"

namespace ballast {

// Caches the most recently used tables, since photographs come in few sizes. A
// new table takes the slot and memory of the least recently used one.
// Thread-compatible.
class TableCache {
 public:
  // Most bytes that all tables together may hold, except for the two used last.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // The table for these lengths. Valid until the second Find after this one.
  // Neither length is 0.
  const QuadTable* Find(QuadFormat format, const Resampling& resampling,
                        uint32_t source, uint32_t output);

  // Memory held, in bytes.
  size_t bytes() const;

 private:
  struct Slot {
    QuadTable table;
    uint64_t last_use = 0;  // 0: empty
  };
  Slot* Oldest(bool or_empty);

  std::array<Slot, 32> slots_;
  uint64_t uses_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_TABLE_CACHE_H_
