#include "server/image/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

// Most memory that libwebp itself takes: a lossless picture is first decoded to
// four bytes per pixel.
constexpr uint64_t kOwnBytesAPixel = 4;

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

absl::Status Damaged(absl::string_view what) {
  return DataFaultError(absl::StrCat("WebP is truncated or damaged: ", what));
}

struct Canvas {
  uint32_t width = 0;
  uint32_t height = 0;
  uint8_t* pixels = nullptr;
  size_t stride() const { return size_t{width} * 3; }
  size_t size() const { return stride() * height; }
};

// Decodes a frame to its place on the canvas, directly to RGB: transparent
// pixels keep the colour given in the file.
absl::Status DecodeFrame(const WebPIterator& frame, const Canvas& canvas) {
  const auto [left, top] = std::pair(frame.x_offset, frame.y_offset);
  if (left < 0 || top < 0 || frame.width <= 0 || frame.height <= 0 ||
      uint64_t(left) + uint64_t(frame.width) > canvas.width ||
      uint64_t(top) + uint64_t(frame.height) > canvas.height) {
    return Damaged("a frame lies outside its canvas");
  }
  // The first frame of an animation may be smaller than the canvas; the rest is
  // then black.
  if (uint32_t(frame.width) != canvas.width ||
      uint32_t(frame.height) != canvas.height) {
    std::memset(canvas.pixels, 0, canvas.size());
  }
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) {
    return absl::InternalError("libwebp's headers are of another version");
  }
  const size_t offset = size_t(top) * canvas.stride() + size_t(left) * 3;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = canvas.pixels + offset;
  config.output.u.RGBA.stride = static_cast<int>(canvas.stride());
  config.output.u.RGBA.size = canvas.size() - offset;
  const VP8StatusCode code =
      WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (code == VP8_STATUS_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(
        "decoding a WebP: the machine is out of memory");
  }
  if (code != VP8_STATUS_OK) {
    return Damaged(absl::StrCat("libwebp's status ", code));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeWebp(absl::string_view bytes, uint32_t width,
                        uint32_t height, ScratchArena* arena, RowSink* sink) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()),
                         bytes.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return Damaged("its chunks do not fit the file");
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH) != width ||
      WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT) != height) {
    return Damaged("its canvas is not of the header's size");
  }
  Canvas canvas = {width, height, nullptr};
  const uint64_t libwebp = uint64_t{width} * height * kOwnBytesAPixel;
  if (libwebp < arena->limit() &&
      canvas.size() + arena->used() <= arena->limit() - libwebp) {
    canvas.pixels = arena->AllocateArray<uint8_t>(canvas.size());
  }
  if (canvas.pixels == nullptr) {
    return arena->Refusal(
        absl::StrCat("WebP of ", width, "x", height, " pixels"));
  }
  BALLAST_RETURN_IF_ERROR(sink->Begin(width, height));
  WebPIterator frame = {};
  absl::Status status = Damaged("it has no frame");
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame)) {
    status = DecodeFrame(frame, canvas);
  }
  WebPDemuxReleaseIterator(&frame);
  BALLAST_RETURN_IF_ERROR(status);
  CopyRows(canvas.pixels, width, height, sink);
  return absl::OkStatus();
}

}  // namespace ballast
