#include "server/delivery/placeholder.h"

#include <algorithm>
#include <cstring>

#include "server/delivery/payload.h"

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

void FillLanguagePlaceholder(const SampleRequest& request,
                             const ModelText& text,
                             absl::Span<const TileShape> sides,
                             absl::Span<const VideoText> videos,
                             absl::Span<const GridThw> video_grids) {
  const v1::Model& model = text.model();
  const v1::TokenIds& ids = model.token_ids();
  const LanguageArrays arrays =
      OpenLanguagePayload(request, model.position_axes());
  std::fill(arrays.ids.begin(), arrays.ids.end(), ids.pad());
  std::fill(arrays.labels.begin(), arrays.labels.end(), kNoLabel);
  auto at = arrays.ids.begin();
  bool fits = true;
  const auto add = [&](uint64_t tokens, int32_t id) {
    const bool has_ends = ids.vision_start() >= 0 && ids.vision_end() >= 0;
    const auto room = static_cast<uint64_t>(arrays.ids.end() - at);
    fits = fits && tokens + (has_ends ? 2 : 0) <= room;
    if (!fits) return;
    if (has_ends) *at++ = ids.vision_start();
    at = std::fill_n(at, tokens, id);
    if (has_ends) *at++ = ids.vision_end();
  };
  for (const TileShape& side : sides) {
    const absl::StatusOr<uint32_t> tokens = text.images().Placeholders(
        side.height, side.width, static_cast<uint32_t>(sides.size()));
    fits = fits && tokens.ok();
    if (fits) add(*tokens, ids.image());
  }
  for (const VideoText& video : videos) {
    for (uint32_t run = 0; run < video.runs; ++run) {
      add(video.run_tokens, text.video_placeholder());
    }
  }
  // Place fails if the model pads with its image id.
  if (!text.Place(arrays.ids, sides, video_grids, arrays.positions).ok()) {
    CountUp(arrays);
  }
}

}  // namespace ballast
