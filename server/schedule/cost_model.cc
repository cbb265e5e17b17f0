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
                                         const v1::Model& model) {
  SampleSize size;
  size.label_tokens = sample.label_tokens;
  uint64_t tokens = sample.text_tokens;
  size.grids.reserve(sample.images.size());
  std::vector<uint32_t> encoded;
  bool any_encoded = false;
  for (size_t i = 0; i < sample.images.size(); ++i) {
    const ImageSize& image = sample.images[i];
    BALLAST_ASSIGN_OR_RETURN(const ImageGrid grid,
                             ResizedGrid(image.height, image.width, model));
    size.patches += grid.patches();
    tokens += ImageTokens(grid, model);
    size.grids.push_back(grid);
    encoded.push_back(sample.encoded_bytes(i));
    any_encoded |= encoded.back() != 0;
  }
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
