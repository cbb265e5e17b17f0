#include "server/delivery/placeholder.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "server/delivery/payload.h"
#include "server/text/positions.h"

namespace ballast {
namespace {

constexpr int32_t kNoLabel = -100;

// Positions 0, 1, 2, … on each axis.
void CountUp(const LanguageArrays& arrays) {
  const size_t tokens = arrays.ids.size();
  for (size_t i = 0; i < arrays.positions.size(); ++i) {
    arrays.positions[i] = static_cast<int32_t>(i % tokens);
  }
}

}  // namespace

void FillVisionPlaceholder(const SampleRequest& request) {
  for (const ImageRecord& image : request.images) {
    const absl::Span<uint8_t> data = ImageData(image, request.payload);
    std::memset(data.data(), image.encoded_bytes == 0 ? kGreyPixel : 0,
                data.size());
  }
  ClearVisionPadding(request);
}

void FillFamilyPlaceholder(const SampleRequest& request,
                           const FamilyText& family,
                           absl::Span<const TileShape> sides,
                           absl::Span<const VideoText> videos) {
  const v1::Model& model = family.model();
  const LanguageArrays arrays =
      OpenLanguagePayload(request, model.position_axes());
  std::fill(arrays.ids.begin(), arrays.ids.end(), model.token_ids().pad());
  std::fill(arrays.labels.begin(), arrays.labels.end(), kNoLabel);
  // Its tokens include these, so they fit.
  const uint64_t of_images = family.Placeholders(sides).value_or(0);
  uint64_t of_videos = 0;
  for (const VideoText& video : videos) {
    of_videos += uint64_t{video.runs} * video.run_tokens;
  }
  if (of_images + of_videos <= arrays.ids.size()) {
    const auto videos_at =
        std::fill_n(arrays.ids.begin(), of_images, model.token_ids().image());
    std::fill_n(videos_at, of_videos, family.video_placeholder());
  }
  if (family.Place(arrays.ids, sides, arrays.positions).ok()) return;
  CountUp(arrays);
}

void FillLanguagePlaceholder(const SampleRequest& request,
                             const v1::Model& model, size_t images,
                             absl::Span<const GridThw> videos) {
  const LanguageArrays arrays =
      OpenLanguagePayload(request, model.position_axes());
  std::fill(arrays.ids.begin(), arrays.ids.end(), model.token_ids().pad());
  std::fill(arrays.labels.begin(), arrays.labels.end(), kNoLabel);
  size_t at = 0;
  // Returns whether the run fits.
  const auto add = [&](size_t tokens, int32_t id) {
    if (arrays.ids.size() - at < tokens + 2) return false;
    arrays.ids[at] = model.token_ids().vision_start();
    std::fill_n(arrays.ids.begin() + at + 1, tokens, id);
    arrays.ids[at + 1 + tokens] = model.token_ids().vision_end();
    at += tokens + 2;
    return true;
  };
  std::vector<GridThw> grids;
  for (const ImageGrid& grid : request.grids.first(images)) {
    if (!add(ImageTokens(grid, model), model.token_ids().image())) break;
    grids.push_back({1, grid.grid_h, grid.grid_w});
  }
  size_t runs = 0;
  const size_t merged = size_t{model.merge()} * model.merge();
  for (const GridThw& run : videos) {
    if (!add(size_t{run.t} * run.h * run.w / merged,
             model.token_ids().video())) {
      break;
    }
    ++runs;
  }
  if (ComputePositions(arrays.ids, grids, model, arrays.positions,
                       videos.first(runs))
          .ok()) {
    return;
  }
  // ComputePositions fails if the model pads with its image id.
  CountUp(arrays);
}

}  // namespace ballast
