#include "server/text/positions.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/audio/audio_in_video.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"

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

// The time of a temporal patch, as PyTorch multiplies.
float GetTime(size_t patch, const GridThw& grid) {
  const auto number = static_cast<float>(patch);
  if (grid.ids_per_second == 0) return number * grid.interval;
  return number * static_cast<float>(grid.seconds) *
         static_cast<float>(grid.ids_per_second);
}

// Writes the positions of an image or a video, from `start` on, to the three
// axes at `out`, each `stride` long. Whole numbers (T) are rounded down.
template <typename T>
void WriteGrid(const MergedGrid& grid, const GridThw& times, T start,
               size_t stride, T* out) {
  size_t i = 0;
  for (size_t patch = 0; patch < grid.t; ++patch) {
    const auto t = static_cast<T>(GetTime(patch, times));
    for (size_t row = 0; row < grid.h; ++row) {
      for (size_t column = 0; column < grid.w; ++column, ++i) {
        out[i] = start + t;
        out[stride + i] = start + static_cast<T>(row);
        out[2 * stride + i] = start + static_cast<T>(column);
      }
    }
  }
}

// Writes the positions of a video with its audio, whose first placeholder is
// token `at`, and of the two marks before and after, to the three axes of
// `out`. Returns the first token after them.
template <typename T>
absl::StatusOr<size_t> WriteAudioInVideo(absl::Span<const int32_t> ids,
                                         size_t at, const MergedGrid& grid,
                                         const GridThw& whole,
                                         const v1::Model& model,
                                         absl::Span<T> out) {
  constexpr size_t kMarks = 2;
  const v1::AudioFamily* audio = GetAudioFamily(model);
  if (audio == nullptr || model.position_axes() != 3) {
    return absl::InternalError(
        "a video with its audio, of a model without a rule for it");
  }
  const size_t room = ids.size() - at - grid.tokens();
  if (at < kMarks || whole.audio_tokens > room ||
      kMarks > room - whole.audio_tokens) {
    return DataFaultError(absl::StrCat(
        "a video of ", grid.tokens(), " tokens with ", whole.audio_tokens,
        " of its audio and two marks at both ends does not fit the ids from "
        "token ",
        at, " on"));
  }
  const AudioInVideo video = {
      static_cast<uint32_t>(grid.t), static_cast<uint32_t>(grid.h),
      static_cast<uint32_t>(grid.w), whole.seconds, whole.audio_tokens};
  size_t k = at;
  for (const AudioInVideoRun& run :
       OrderAudioInVideo(audio->in_video(), video)) {
    const int32_t id =
        run.is_audio ? model.token_ids().audio() : model.token_ids().video();
    for (const size_t end = k + run.tokens; k < end; ++k) {
      if (ids[k] == id) continue;
      return DataFaultError(absl::StrCat(
          "token ", k, " is ", ids[k],
          " within a video with its audio; wanted ", id, ", a placeholder of ",
          run.is_audio ? "audio" : "the video"));
    }
  }
  const size_t first = at - kMarks;
  const AudioInVideoPositions places = PlaceAudioInVideo(
      audio->in_video(), video, static_cast<float>(out[first]));
  const std::vector<float>* const axes[] = {&places.time, &places.row,
                                            &places.column};
  for (size_t axis = 0; axis < 3; ++axis) {
    // By a rule of whole numbers T is one, too.
    std::transform(axes[axis]->begin(), axes[axis]->end(),
                   out.begin() + axis * ids.size() + first,
                   [](float place) { return static_cast<T>(place); });
  }
  return first + places.time.size();
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

// ComputePositions of one axis or three.
template <typename T>
absl::Status WritePositions(absl::Span<const int32_t> ids,
                            absl::Span<const GridThw> grids,
                            const v1::Model& model, absl::Span<T> out,
                            absl::Span<const GridThw> videos) {
  const size_t axes = model.position_axes();
  const v1::ModelProfile* profile = GetProfile(model);
  const bool is_after_sides =
      profile != nullptr && profile->videos().text_after_sides();
  Runs images = {"image", model.token_ids().image(), grids};
  // A model of one's own may have no video token.
  Runs of_videos = {"video", model.token_ids().video(), videos};
  // The position of token i is base + i - first: after a medium both are new,
  // so that fractions are rounded once.
  T base = 0;
  size_t first = 0;
  const auto cursor = [&](size_t i) {
    return base + static_cast<T>(i - first);
  };
  for (size_t i = 0; i < ids.size();) {
    Runs* const runs = ids[i] == images.id                         ? &images
                       : ids[i] == of_videos.id && !videos.empty() ? &of_videos
                                                                   : nullptr;
    if (runs == nullptr) {
      for (size_t axis = 0; axis < axes; ++axis) {
        out[axis * ids.size() + i] = cursor(i);
      }
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
    if (whole.audio_tokens > 0) {
      BALLAST_ASSIGN_OR_RETURN(
          i, WriteAudioInVideo(ids, i, grid, whole, model, out));
      base = out[i - 1] + 1;
      first = i;
      ++runs->next;
      continue;
    }
    const size_t end = i + grid.tokens();
    for (size_t k = i; k < end; ++k) {
      if (ids[k] == runs->id) continue;
      return DataFaultError(
          absl::StrCat(runs->kind, " ", runs->next, " has ", grid.tokens(),
                       " tokens, but only ", k - i,
                       " placeholders follow from token ", i, " on"));
    }
    if (axes == 1) {
      for (size_t k = i; k < end; ++k) out[k] = cursor(k);
    } else {
      const T start = cursor(i);
      WriteGrid(grid, whole, start, ids.size(), out.data() + i);
      T last = static_cast<T>(std::max(grid.h, grid.w) - 1);
      if (runs == &images || !is_after_sides) {
        last = std::max(last, static_cast<T>(GetTime(grid.t - 1, whole)));
      }
      base = start + last + 1;
      first = end;
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
  if (!HasFloatPositions(model)) {
    return WritePositions(ids, grids, model, out, videos);
  }
  std::vector<float> places(out.size());
  BALLAST_RETURN_IF_ERROR(
      WritePositions(ids, grids, model, absl::MakeSpan(places), videos));
  if (!places.empty()) {
    std::memcpy(out.data(), places.data(), places.size() * sizeof(float));
  }
  return absl::OkStatus();
}

void CountPositions(const v1::Model& model, absl::Span<int32_t> out) {
  const size_t tokens = out.size() / model.position_axes();
  const bool is_float = HasFloatPositions(model);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t place = i % tokens;
    out[i] = is_float ? std::bit_cast<int32_t>(static_cast<float>(place))
                      : static_cast<int32_t>(place);
  }
}

}  // namespace ballast
