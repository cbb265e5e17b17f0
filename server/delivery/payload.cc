#include "server/delivery/payload.h"

#include <cstring>

namespace ballast {
namespace {

// Zeroes payload[from, to).
void Clear(absl::Span<uint8_t> payload, uint64_t from, uint64_t to) {
  if (from < to) std::memset(payload.data() + from, 0, to - from);
}

}  // namespace

absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload) {
  return payload.subspan(image.data, ImageBytes(image));
}

void ClearVisionPadding(const SampleRequest& request) {
  uint64_t end = 0;
  for (const ImageRecord& image : request.images) {
    Clear(request.payload, end, image.data);
    end = image.data + ImageBytes(image);
  }
  Clear(request.payload, end, request.payload.size());
}

LanguageArrays OpenLanguagePayload(const SampleRequest& request,
                                   uint32_t position_axes) {
  const uint64_t tokens = request.record.tokens;
  const LanguagePayload layout = LayOutLanguage(tokens, position_axes);
  const uint64_t column = tokens * sizeof(int32_t);
  Clear(request.payload, layout.ids + column, layout.labels);
  Clear(request.payload, layout.labels + column, layout.positions);
  Clear(request.payload, layout.positions + column * position_axes,
        request.payload.size());
  const auto array = [&](uint64_t offset, uint64_t length) {
    return absl::MakeSpan(
        reinterpret_cast<int32_t*>(request.payload.data() + offset), length);
  };
  return {array(layout.ids, tokens), array(layout.labels, tokens),
          array(layout.positions, tokens * position_axes)};
}

}  // namespace ballast
