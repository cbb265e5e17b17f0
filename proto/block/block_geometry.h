#ifndef BALLAST_PROTO_BLOCK_BLOCK_GEOMETRY_H_
#define BALLAST_PROTO_BLOCK_BLOCK_GEOMETRY_H_

#include <cstdint>

namespace ballast {

// The model's parameters that the size of a block depends on.
struct BlockGeometry {
  uint32_t patch = 14;         // pixels
  uint32_t position_axes = 3;  // 1, 3 (MRoPE) or 4
  // Pixels of each side of a crop beyond its patches (Job.CropShape.margin).
  uint32_t margin = 0;
};

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_BLOCK_GEOMETRY_H_
