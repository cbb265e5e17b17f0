#include "server/image/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/image/lossless_webp.h"

namespace ballast {
namespace {

// Name and size.
constexpr size_t kChunkHeader = 8;

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

// The first frame of a file.
class FirstFrame {
 public:
  FirstFrame() = default;
  FirstFrame(const FirstFrame&) = delete;
  FirstFrame& operator=(const FirstFrame&) = delete;
  ~FirstFrame() {
    WebPDemuxReleaseIterator(&frame_);
    WebPDemuxDelete(demuxer_);
  }

  // `bytes` stay alive. Errors: a data fault.
  absl::Status Open(absl::string_view bytes) {
    const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()),
                           bytes.size()};
    demuxer_ = WebPDemux(&data);
    if (demuxer_ == nullptr) return Damaged("its chunks do not fit the file");
    if (!WebPDemuxGetFrame(demuxer_, 1, &frame_)) {
      return Damaged("it has no frame");
    }
    return absl::OkStatus();
  }

  uint32_t canvas(WebPFormatFeature side) const {
    return WebPDemuxGetI(demuxer_, side);
  }
  const WebPIterator& frame() const { return frame_; }

 private:
  WebPDemuxer* demuxer_ = nullptr;
  WebPIterator frame_ = {};
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

absl::StatusOr<uint64_t> ReadWebpTableBytes(absl::string_view bytes) {
  FirstFrame first;
  BALLAST_RETURN_IF_ERROR(first.Open(bytes));
  const WebPIterator& frame = first.frame();
  absl::string_view chunks(reinterpret_cast<const char*>(frame.fragment.bytes),
                           frame.fragment.size);
  absl::string_view alpha;
  while (chunks.size() >= kChunkHeader) {
    const absl::string_view name = chunks.substr(0, 4);
    uint32_t size = 0;  // little-endian
    std::memcpy(&size, chunks.data() + 4, sizeof(size));
    const absl::string_view payload = chunks.substr(kChunkHeader, size);
    if (name == "VP8L") return ReadLosslessTableBytes(payload);
    if (name == "VP8 ") {
      if (alpha.empty()) return 0;
      return ReadAlphaBytes(alpha, uint32_t(frame.width),
                            uint32_t(frame.height));
    }
    if (name == "ALPH") alpha = payload;
    chunks.remove_prefix(std::min<uint64_t>(
        chunks.size(), kChunkHeader + size + (size & uint64_t{1})));
  }
  return Damaged("a frame has no picture");
}

absl::Status DecodeWebp(absl::string_view bytes, uint32_t width,
                        uint32_t height, ScratchArena* arena, RowSink* sink) {
  FirstFrame first;
  BALLAST_RETURN_IF_ERROR(first.Open(bytes));
  if (first.canvas(WEBP_FF_CANVAS_WIDTH) != width ||
      first.canvas(WEBP_FF_CANVAS_HEIGHT) != height) {
    return Damaged("its canvas is not of the header's size");
  }
  Canvas canvas = {width, height, nullptr};
  canvas.pixels = arena->AllocateArray<uint8_t>(canvas.size());
  if (canvas.pixels == nullptr) {
    return arena->Refusal(
        absl::StrCat("WebP of ", width, "x", height, " pixels"));
  }
  BALLAST_RETURN_IF_ERROR(sink->Begin(width, height));
  BALLAST_RETURN_IF_ERROR(DecodeFrame(first.frame(), canvas));
  CopyRows(canvas.pixels, width, height, sink);
  return absl::OkStatus();
}

}  // namespace ballast
