#include "server/schedule/cost_model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/schedule/image_columns.h"

namespace ballast {

static_assert(ImageMark::kMostBytes <= kMostEncodedBytes);

absl::StatusOr<SampleSize> MeasureSample(const IndexedSample& sample,
                                         const ModelImages& model) {
  SampleSize size;
  size.label_tokens = sample.label_tokens;
  uint64_t tokens = sample.text_tokens;
  size.images = static_cast<uint32_t>(sample.images.size());
  size.grids.reserve(sample.images.size());
  std::vector<uint32_t> encoded;
  std::vector<uint32_t> crops;
  bool any_encoded = false;
  for (size_t i = 0; i < sample.images.size(); ++i) {
    const ImageSize& image = sample.images[i];
    BALLAST_ASSIGN_OR_RETURN(
        const ModelImages::Share share,
        model.Add(image.height, image.width, size.images, &size.grids));
    tokens += share.placeholders;
    const uint32_t bytes = sample.encoded_bytes(i);
    if (bytes != 0 && share.crops != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image ", i, " would travel encoded, and the model makes ",
          share.crops, " crops of it; wanted one"));
    }
    encoded.insert(encoded.end(), share.crops, bytes);
    any_encoded |= bytes != 0;
    if (!model.is_plain()) crops.push_back(share.crops);
    if (model.wants_sides()) size.sides.push_back(image);
  }
  for (const ImageGrid& grid : size.grids) size.patches += grid.patches();
  if (size.grids.size() != sample.images.size()) size.crops = std::move(crops);
  if (any_encoded) size.encoded_bytes = std::move(encoded);
  if (tokens > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("sample has ", tokens, " tokens; wanted at most 2^32-1"));
  }
  size.tokens = static_cast<uint32_t>(tokens);
  return size;
}

double SampleCost(const SampleSize& size, v1::Module module,
                  const v1::Balance::Cost& coefficients) {
  if (module == v1::MODULE_LANGUAGE) {
    const v1::Balance::Coefficients& c = coefficients.language();
    const double n = size.tokens;
    return c.linear() * n + c.quadratic() * n * n;
  }
  const v1::Balance::Coefficients& c = coefficients.vision();
  double cost = c.linear() * static_cast<double>(size.patches);
  for (const ImageGrid& grid : size.grids) {
    const double m = static_cast<double>(grid.patches());
    cost += c.quadratic() * m * m;
  }
  return cost;
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

double JointCost(const SampleSize& size,
                 const v1::Balance::Cost& coefficients) {
  return SampleCost(size, v1::MODULE_VISION, coefficients) +
         SampleCost(size, v1::MODULE_LANGUAGE, coefficients);
}

}  // namespace ballast
