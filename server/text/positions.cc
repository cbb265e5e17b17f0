#include "server/text/positions.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

// An image's grid after merging, in tokens.
struct MergedGrid {
  size_t t, h, w;
  size_t tokens() const { return t * h * w; }
};

// The merged grid of run `number` of a kind. It must fit in the remaining
// `room` ids, which also prevents the product from overflowing.
absl::StatusOr<MergedGrid> Merge(const GridThw& grid, uint32_t merge,
                                 absl::string_view kind, size_t number,
                                 size_t room) {
  const auto fault = [&](absl::string_view what) {
    return DataFaultError(absl::StrCat(kind, " ", number, ", grid (", grid.t,
                                       ", ", grid.h, ", ", grid.w,
                                       "): ", what));
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

// Writes the positions of an image or a video, from `cursor` on, to the three
// axes at `out`, each `stride` long.
void WriteGrid(const MergedGrid& grid, float interval, int32_t cursor,
               size_t stride, int32_t* out) {
  size_t i = 0;
  for (size_t patch = 0; patch < grid.t; ++patch) {
    // In floats, as PyTorch multiplies.
    const auto t = static_cast<int32_t>(static_cast<float>(patch) * interval);
    for (size_t row = 0; row < grid.h; ++row) {
      for (size_t column = 0; column < grid.w; ++column, ++i) {
        out[i] = cursor + t;
        out[stride + i] = cursor + static_cast<int32_t>(row);
        out[2 * stride + i] = cursor + static_cast<int32_t>(column);
      }
    }
  }
}

// HunyuanVL's four axes of a sample: the sequence, and for the tokens of an
// image but its first and last column, row and number.
absl::Status WriteFourAxes(absl::Span<const int32_t> ids,
                           absl::Span<const GridThw> grids,
                           const v1::Model& model, absl::Span<int32_t> out) {
  const size_t stride = ids.size();
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(i % stride);
  }
  const int32_t placeholder = model.token_ids().image();
  size_t at = 0;
  for (size_t i = 0; i < grids.size(); ++i) {
    while (at < stride && ids[at] != placeholder) ++at;
    BALLAST_ASSIGN_OR_RETURN(
        const MergedGrid grid,
        Merge(grids[i], model.merge(), "image", i, stride - at));
    const size_t tokens = grid.h * (grid.w + 1) + 2;
    if (tokens > stride - at) {
      return DataFaultError(absl::StrCat(
          "image ", i, " has ", tokens, " tokens from token ", at,
          " on; wanted at most the ", stride - at, " that there are"));
    }
    size_t k = at + 1;
    for (size_t row = 0; row < grid.h; ++row) {
      for (size_t column = 0; column <= grid.w; ++column, ++k) {
        out[stride + k] = static_cast<int32_t>(column);
        out[2 * stride + k] = static_cast<int32_t>(row);
        out[3 * stride + k] = static_cast<int32_t>(i);
      }
    }
    at += tokens;
  }
  return absl::OkStatus();
}

// The runs of one kind of placeholder.
struct Runs {
  absl::string_view kind;
  int32_t id;
  absl::Span<const GridThw> grids;
  size_t next = 0;
};

}  // namespace

absl::Status ComputePositions(absl::Span<const int32_t> ids,
                              absl::Span<const GridThw> grids,
                              const v1::Model& model, absl::Span<int32_t> out,
                              absl::Span<const GridThw> videos) {
  const size_t axes = model.position_axes();
  if (axes != 1 && axes != 3 && axes != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.position_axes is ", axes, "; wanted 1, 3 or 4"));
  }
  if (out.size() != axes * ids.size() ||
      ids.size() > size_t{std::numeric_limits<int32_t>::max()}) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", out.size(), " position ids; ", ids.size(),
                     " tokens of ", axes, " axes need ", axes * ids.size()));
  }
  if (axes == 4) return WriteFourAxes(ids, grids, model, out);
  Runs images = {"image", model.token_ids().image(), grids};
  // A model of one's own may have no video token.
  Runs of_videos = {"video", model.token_ids().video(), videos};
  int32_t cursor = 0;
  for (size_t i = 0; i < ids.size();) {
    Runs* const runs = ids[i] == images.id                         ? &images
                       : ids[i] == of_videos.id && !videos.empty() ? &of_videos
                                                                   : nullptr;
    if (runs == nullptr) {
      for (size_t axis = 0; axis < axes; ++axis) {
        out[axis * ids.size() + i] = cursor;
      }
      ++cursor;
      ++i;
      continue;
    }
    if (runs->next == runs->grids.size()) {
      return DataFaultError(absl::StrCat(
          "placeholder at token ", i, " belongs to no ", runs->kind, "; the ",
          runs->grids.size(), " grids given are used up"));
    }
    const GridThw& whole = runs->grids[runs->next];
    BALLAST_ASSIGN_OR_RETURN(
        const MergedGrid grid,
        Merge(whole, model.merge(), runs->kind, runs->next, ids.size() - i));
    const size_t end = i + grid.tokens();
    for (size_t k = i; k < end; ++k) {
      if (ids[k] == runs->id) continue;
      return DataFaultError(
          absl::StrCat(runs->kind, " ", runs->next, " has ", grid.tokens(),
                       " tokens, but only ", k - i,
                       " placeholders stand from token ", i, " on"));
    }
    if (axes == 1) {
      std::iota(out.begin() + i, out.begin() + end, cursor);
      cursor += static_cast<int32_t>(grid.tokens());
    } else {
      WriteGrid(grid, whole.interval, cursor, ids.size(), out.data() + i);
      const size_t t = runs == &images ? grid.t : 1;
      cursor += static_cast<int32_t>(std::max({t, grid.h, grid.w}));
    }
    i = end;
    ++runs->next;
  }
  for (const Runs* runs : {&images, &of_videos}) {
    if (runs->next == runs->grids.size()) continue;
    return DataFaultError(absl::StrCat("only ", runs->next, " of ",
                                       runs->grids.size(), " ", runs->kind,
                                       "s have placeholders among the ids"));
  }
  return absl::OkStatus();
}

}  // namespace ballast
