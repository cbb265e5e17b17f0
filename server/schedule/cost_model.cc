#include "server/schedule/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/topology.h"
#include "server/model/model_videos.h"
#include "server/sample/source_index.h"

namespace ballast {

std::vector<int64_t> FixedPoint(absl::Span<const double> costs, double bound) {
  int exponent = 0;
  std::frexp(bound, &exponent);  // bound < 2^exponent
  const int shift = std::min(16, 60 - exponent);
  // A power of 2: the product is exact.
  const double scale = std::ldexp(1.0, shift);
  std::vector<int64_t> fixed;
  fixed.reserve(costs.size());
  for (const double cost : costs) {
    fixed.push_back(std::llround(cost * scale));
  }
  return fixed;
}

static_assert(ImageMark::kMaxBytes <= kMaxEncodedBytes);

namespace {

// Adds a video; returns its placeholders.
absl::StatusOr<uint64_t> AddVideo(const IndexedMedium& medium,
                                  const ModelImages& model, SampleSize* size) {
  if (model.video() == nullptr) {
    return absl::InvalidArgumentError(
        "video is not supported for this model.profile");
  }
  BALLAST_ASSIGN_OR_RETURN(
      const VideoPlan plan,
      PlanIndexedVideo(*model.video(), *medium.stream, medium.times));
  const ImageGrid grid = {plan.height, plan.width, plan.grid_h, plan.grid_w};
  size->grids.insert(size->grids.end(), plan.frames.size(), grid);
  size->crops.push_back(static_cast<uint32_t>(plan.frames.size()));
  size->grid_t.push_back(plan.grid_t);
  size->seconds_per_patch.push_back(
      model.video()->frames_are_crops
          ? 0
          : static_cast<float>(plan.seconds_per_patch));
  if (model.wants_sides()) {
    size->sides.push_back({medium.stream->width, medium.stream->height});
  }
  size->patches += plan.grid_t * grid.patches();
  return plan.tokens;
}

// Adds a medium that travels as rows; returns its placeholders.
absl::StatusOr<uint64_t> AddRows(const IndexedMedium& medium,
                                 const ModelImages& model, SampleSize* size) {
  if (model.rows() == nullptr || model.rows()->kind() != medium.kind) {
    return absl::InvalidArgumentError(absl::StrCat(
        MediumName(medium.kind), " is not supported for this model.profile"));
  }
  BALLAST_ASSIGN_OR_RETURN(const RowsPlan plan,
                           model.rows()->Plan(*medium.stream));
  size->clip_rows.push_back(plan.rows);
  size->clip_frames.push_back(plan.frames);
  size->clip_tokens.push_back(static_cast<uint32_t>(plan.tokens));
  return plan.tokens;
}

double RowsCost(const SampleSize& size, const ModuleCost& coefficients) {
  double frames = 0;
  for (const uint32_t m : size.clip_frames) frames += m;
  double cost = coefficients.linear * frames;
  for (const uint32_t clip : size.clip_frames) {
    const double m = clip;
    cost += coefficients.quadratic * m * m;
  }
  return cost;
}

double ImageCost(const SampleSize& size, const ModuleCost& coefficients) {
  double cost = coefficients.linear * static_cast<double>(size.patches);
  const auto add = [&](const ImageGrid& grid) {
    const double m = static_cast<double>(grid.patches());
    cost += coefficients.quadratic * m * m;
  };
  if (size.grid_t.empty()) {
    for (const ImageGrid& grid : size.grids) add(grid);
    return cost;
  }
  size_t crop = 0;
  for (size_t i = 0; i < size.crops.size(); ++i) {
    const uint32_t count = size.grid_t[i] != 0 ? size.grid_t[i] : size.crops[i];
    for (uint32_t k = 0; k < count; ++k) add(size.grids[crop + k]);
    crop += size.crops[i];
  }
  return cost;
}

}  // namespace

absl::StatusOr<SampleSize> MeasureSample(const IndexedSample& sample,
                                         const SampleImages& sample_images,
                                         const ModelImages& model) {
  SampleSize size;
  size.label_tokens = sample.label_tokens;
  uint64_t tokens = sample.text_tokens;
  uint64_t of_images = 0;
  const size_t images = sample.media.count(MediumKind::kImage);
  size.videos = static_cast<uint32_t>(sample.media.count(MediumKind::kVideo));
  size.images = static_cast<uint32_t>(images) + size.videos;
  size.grids.reserve(images);
  std::vector<uint32_t> encoded;
  bool any_encoded = false;
  for (const IndexedMedium& medium : sample.media) {
    if (medium.kind != MediumKind::kImage) {
      BALLAST_ASSIGN_OR_RETURN(const uint64_t placeholders,
                               medium.kind == MediumKind::kVideo
                                   ? AddVideo(medium, model, &size)
                                   : AddRows(medium, model, &size));
      tokens += placeholders;
      encoded.resize(size.grids.size(), 0);
      continue;
    }
    const size_t first = size.grids.size();
    BALLAST_ASSIGN_OR_RETURN(
        const ModelImages::Share share,
        model.Add(sample_images, medium.number, &size.grids));
    of_images += share.placeholders;
    uint32_t bytes = sample.encoded_bytes(medium);
    if (bytes != 0 && share.crops != 1 && model.recipe() == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          medium.name(), " would travel encoded, and the model makes ",
          share.crops, " crops of it; wanted one"));
    }
    if (!share.may_travel_encoded) bytes = 0;
    encoded.insert(encoded.end(), share.crops, bytes);
    any_encoded |= bytes != 0;
    for (size_t k = first; k < size.grids.size(); ++k) {
      size.patches += size.grids[k].patches();
    }
    if (size.videos != 0) {
      size.grid_t.push_back(0);
      size.seconds_per_patch.push_back(0);
    }
    // No entries where every image is one crop.
    if (size.videos != 0 || share.crops != 1 || !size.crops.empty()) {
      if (size.videos == 0) size.crops.resize(medium.number, 1);
      size.crops.push_back(share.crops);
    }
    if (model.wants_sides()) size.sides.push_back(medium.size);
  }
  if (size.videos == 0 && size.grids.size() == images) size.crops.clear();
  if (any_encoded) {
    size.encoded_bytes = std::move(encoded);
  }
  tokens += of_images;
  if (sample.first_text_tokens != 0) {
    // Not more than `tokens`, whose size is checked.
    size.first_tokens =
        static_cast<uint32_t>(sample.first_text_tokens + of_images);
    tokens += of_images;
  }
  if (tokens > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sample has ", tokens, " tokens; wanted at most 2^32-1"));
  }
  size.tokens = static_cast<uint32_t>(tokens);
  return size;
}

uint64_t PaddedTokens(const SampleSize& size, uint32_t align) {
  uint64_t padded = 0;
  ForEachSequence(size.tokens, size.first_tokens,
                  [&](uint32_t tokens) { padded += AlignUp(tokens, align); });
  return padded;
}

uint64_t PaddedSquares(const SampleSize& size, uint32_t align) {
  uint64_t squares = 0;
  ForEachSequence(size.tokens, size.first_tokens, [&](uint32_t tokens) {
    const uint64_t padded = AlignUp(tokens, align);
    squares += padded * padded;
  });
  return squares;
}

bool HasMedia(const SampleSize& size, Media media) {
  switch (media) {
    case Media::kText:
      return true;
    case Media::kImages:
      return !size.grids.empty();
    case Media::kRows:
      return !size.clip_rows.empty();
    case Media::kNone:
      break;
  }
  return false;
}

namespace {

// The part of a forward and backward pass that the module takes: forward,
// gradients of inputs and gradients of weights are a third each.
double GetScale(v1::Balance::Coefficients::Backward backward) {
  switch (backward) {
    case v1::Balance::Coefficients::BACKWARD_INPUTS:
      return 2.0 / 3;
    case v1::Balance::Coefficients::BACKWARD_NONE:
      return 1.0 / 3;
    default:
      return 1;
  }
}

}  // namespace

std::vector<ModuleCost> GetModuleCosts(const v1::Balance::Cost& cost) {
  std::vector<ModuleCost> costs;
  for (const ModuleKind& kind : ModuleKinds()) {
    const v1::Balance::Coefficients& of = GetCoefficients(cost, kind.module);
    const double scale = GetScale(of.backward());
    costs.push_back(
        {kind.module, kind.media, scale * of.linear(), scale * of.quadratic()});
  }
  return costs;
}

double SampleCost(const SampleSize& size, const ModuleCost& cost) {
  switch (cost.media) {
    case Media::kText: {
      double sum = cost.linear * static_cast<double>(size.tokens);
      ForEachSequence(size.tokens, size.first_tokens, [&](uint32_t tokens) {
        const double m = tokens;
        sum += cost.quadratic * m * m;
      });
      return sum;
    }
    case Media::kImages:
      return ImageCost(size, cost);
    case Media::kRows:
      return RowsCost(size, cost);
    case Media::kNone:
      break;
  }
  return 0;
}

const v1::Balance::Cost& CostAt(const v1::Balance& balance, uint64_t step) {
  const auto& changes = balance.cost_changes();
  const auto after = std::upper_bound(
      changes.begin(), changes.end(), step,
      [](uint64_t wanted, const v1::Balance::CostChange& change) {
        return wanted < change.step();
      });
  return after == changes.begin() ? balance.cost() : std::prev(after)->cost();
}

double JointCost(const SampleSize& size, absl::Span<const ModuleCost> costs) {
  double sum = 0;
  for (const ModuleCost& cost : costs) sum += SampleCost(size, cost);
  return sum;
}

}  // namespace ballast
