#include "server/image/frame_resizer.h"

#include <cstddef>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/image/image_sink.h"
#include "server/image/orienting_sink.h"
#include "server/image/resize_sink.h"

namespace ballast {
namespace {

absl::Status WriteRows(const RgbRows& picture, RowSink* sink) {
  BALLAST_RETURN_IF_ERROR(sink->Begin(picture.width, picture.height));
  const size_t bytes = size_t{picture.width} * kChannels;
  for (uint32_t y = 0; y < picture.height;) {
    const absl::Span<uint8_t* const> rows = sink->NextRows();
    for (uint8_t* row : rows) {
      std::memcpy(row, picture.rows + size_t{picture.stride} * y++, bytes);
    }
    sink->RowsDone(rows.size());
  }
  return sink->Finish();
}

}  // namespace

absl::Status FrameResizer::Resize(const RgbRows& picture,
                                  Orientation orientation,
                                  const Resampling& resampling, uint32_t width,
                                  uint32_t height, absl::Span<uint8_t> out) {
  if (picture.width == 0 || picture.height == 0 || width == 0 || height == 0 ||
      uint64_t{width} * height * kChannels != out.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resizing ", picture.width, "x", picture.height, " pixels to ", width,
        "x", height, " in ", out.size(), " bytes; a pixel takes ", kChannels));
  }
  const bool swaps = SwapsSides(orientation);
  const uint32_t turned_width = swaps ? picture.height : picture.width;
  const uint32_t turned_height = swaps ? picture.width : picture.height;
  ImageSink plain(out.data());
  std::optional<ResizeSink> resizing;
  RowSink* sink = &plain;
  if (width != turned_width || height != turned_height) {
    sink = &resizing.emplace(width, height, resampling, out, &arena_, &tables_);
  }
  OrientingSink turning(orientation, &arena_, sink);
  const absl::Status status =
      WriteRows(picture, orientation == kUpright ? sink : &turning);
  arena_.Reset();
  return status;
}

}  // namespace ballast
