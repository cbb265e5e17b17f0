#ifndef BALLAST_SERVER_DELIVERY_BLOCK_ID_H_
#define BALLAST_SERVER_DELIVERY_BLOCK_ID_H_

#include <compare>
#include <cstdint>

namespace ballast {

// A block's position in its role's stream.
struct BlockId {
  uint64_t step = 0;
  uint32_t micro_batch = 0;

  auto operator<=>(const BlockId&) const = default;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_BLOCK_ID_H_
