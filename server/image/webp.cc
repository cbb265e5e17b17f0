#include "server/image/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("WebP is truncated or damaged: ", what));
}

// Decodes a frame to its place on the canvas. Straight to RGB: transparent
// pixels keep the colour that the file gives them.
absl::Status DecodeFrame(const WebPIterator& frame, RgbImage& canvas) {
  const auto [left, top] = std::pair(frame.x_offset, frame.y_offset);
  if (left < 0 || top < 0 || frame.width <= 0 || frame.height <= 0 ||
      uint64_t(left) + uint64_t(frame.width) > canvas.width ||
      uint64_t(top) + uint64_t(frame.height) > canvas.height) {
    return Damaged("a frame lies outside its canvas");
  }
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    return absl::InternalError("libwebp's headers are of another version");
  }
  const size_t stride = size_t{canvas.width} * 3;
  const size_t offset = size_t(top) * stride + size_t(left) * 3;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = canvas.pixels.data() + offset;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = canvas.pixels.size() - offset;
  const VP8StatusCode code =
      WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (code != VP8_STATUS_OK) {
    return Damaged(absl::StrCat("libwebp's status ", code));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RgbImage> DecodeWebp(absl::string_view bytes,
                                    const ImageHeader& header) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()),
                         bytes.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return Damaged("its chunks do not fit the file");
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != header.width ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != header.height) {
    return Damaged("its canvas is not of the header's size");
  }
  // The first frame of an animation may be smaller than the canvas, whose rest
  // is then black.
  WebPIterator frame = {};
  absl::Status status = Damaged("it has no frame");
  RgbImage image{header.width, header.height, {}};
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame)) {
    image.pixels.resize(size_t{header.width} * header.height * 3);
    status = DecodeFrame(frame, image);
  }
  WebPDemuxReleaseIterator(&frame);
  if (!status.ok()) return status;
  return image;
}

}  // namespace ballast
