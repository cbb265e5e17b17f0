#ifndef BALLAST_SERVER_IMAGE_TABLE_CACHE_H_
#define BALLAST_SERVER_IMAGE_TABLE_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "server/image/quad_table.h"

namespace ballast {

// The tables that were used last, since photographs come in few sizes. A new
// one takes the place and the memory of the one used longest ago.
// Thread-compatible.
class TableCache {
 public:
  // What all tables together may hold, but for the two used last.
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // The table of these lengths. Valid until the next but one Find. Neither
  // length is 0.
  const QuadTable* Find(QuadFormat format, uint32_t source, uint32_t output);

  // Memory held.
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
