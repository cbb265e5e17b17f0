#include "server/text/positions.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// An image's grid after merging, in tokens.
struct MergedGrid {
  size_t t, h, w;
  size_t tokens() const { return t * h * w; }
};

// The merged grid of image `number`. It must fit in the remaining `room` ids,
// which also prevents the product from overflowing.
absl::StatusOr<MergedGrid> Merge(const GridThw& grid, uint32_t merge,
                                 size_t number, size_t room) {
  const auto fault = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("image ", number, ", grid (",
                                                   grid.t, ", ", grid.h, ", ",
                                                   grid.w, "): ", what));
  };
  if (merge == 0) return fault("the model's merge is 0");
  if (grid.t == 0 || grid.h == 0 || grid.w == 0) return fault("a side is 0");
  if (grid.h % merge != 0 || grid.w % merge != 0) {
    return fault(absl::StrCat("sides are no multiples of merge ", merge));
  }
  const MergedGrid merged{grid.t, grid.h / merge, grid.w / merge};
  if (merged.h > room || merged.w > room / merged.h ||
      merged.t > room / (merged.h * merged.w)) {
    return fault(absl::StrCat("more tokens than the ", room,
                              " ids from its first placeholder to the end"));
  }
  return merged;
}

// Writes one image's positions, from `cursor` on, to the three axes at `out`,
// each `stride` long.
void WriteImage(const MergedGrid& grid, int32_t cursor, size_t stride,
                int32_t* out) {
  size_t i = 0;
  for (size_t t = 0; t < grid.t; ++t) {
    for (size_t row = 0; row < grid.h; ++row) {
      for (size_t column = 0; column < grid.w; ++column, ++i) {
        out[i] = cursor + static_cast<int32_t>(t);
        out[stride + i] = cursor + static_cast<int32_t>(row);
        out[2 * stride + i] = cursor + static_cast<int32_t>(column);
      }
    }
  }
}

}  // namespace

absl::Status ComputePositions(absl::Span<const int32_t> ids,
                              absl::Span<const GridThw> grids,
                              const v1::Model& model, absl::Span<int32_t> out) {
  const size_t axes = model.position_axes();
  if (axes != 1 && axes != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.position_axes is ", axes, "; wanted 1 or 3"));
  }
  if (out.size() != axes * ids.size() ||
      ids.size() > size_t{std::numeric_limits<int32_t>::max()}) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", out.size(), " position ids; ", ids.size(),
                     " tokens of ", axes, " axes need ", axes * ids.size()));
  }
  const int32_t image = model.token_ids().image();
  size_t next_image = 0;
  int32_t cursor = 0;
  for (size_t i = 0; i < ids.size();) {
    if (ids[i] != image) {
      for (size_t axis = 0; axis < axes; ++axis) {
        out[axis * ids.size() + i] = cursor;
      }
      ++cursor;
      ++i;
      continue;
    }
    if (next_image == grids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("placeholder at token ", i, " belongs to no image; the ",
                       grids.size(), " grids given are used up"));
    }
    BALLAST_ASSIGN_OR_RETURN(
        const MergedGrid grid,
        Merge(grids[next_image], model.merge(), next_image, ids.size() - i));
    const size_t end = i + grid.tokens();
    for (size_t k = i; k < end; ++k) {
      if (ids[k] == image) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "image ", next_image, " has ", grid.tokens(), " tokens, but only ",
          k - i, " placeholders stand from token ", i, " on"));
    }
    if (axes == 1) {
      std::iota(out.begin() + i, out.begin() + end, cursor);
      cursor += static_cast<int32_t>(grid.tokens());
    } else {
      WriteImage(grid, cursor, ids.size(), out.data() + i);
      cursor += static_cast<int32_t>(std::max({grid.t, grid.h, grid.w}));
    }
    i = end;
    ++next_image;
  }
  if (next_image != grids.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("only ", next_image, " of ", grids.size(),
                     " images have placeholders among the ids"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
