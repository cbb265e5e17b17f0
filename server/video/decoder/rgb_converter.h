#ifndef BALLAST_SERVER_VIDEO_DECODER_RGB_CONVERTER_H_
#define BALLAST_SERVER_VIDEO_DECODER_RGB_CONVERTER_H_

extern "C" {
#include <libavutil/frame.h>
#include <libswscale/swscale.h>
}

#include <cstdint>

#include "server/video/decoder/media_input.h"

namespace ballast::video_decoder {

// Converts frames to 8-bit RGB as PyAV's to_ndarray(format="rgb24") does:
// libswscale with its bilinear filter, the frame's own matrix and range.
// Thread-compatible.
class RgbConverter {
 public:
  RgbConverter() = default;
  ~RgbConverter() { sws_freeContext(context_); }
  RgbConverter(const RgbConverter&) = delete;
  RgbConverter& operator=(const RgbConverter&) = delete;

  // Writes frame->height rows of `stride` bytes, a multiple of kRowAlignment
  // and at least 3 bytes a pixel; kSlotMargin bytes behind them may be
  // overwritten. Returns false after a fault.
  bool Convert(const AVFrame& frame, uint8_t* rows, uint32_t stride,
               Fault* fault);

 private:
  void SetColours(const AVFrame& frame);

  SwsContext* context_ = nullptr;
  AVColorSpace colorspace_ = AVCOL_SPC_UNSPECIFIED;
  AVColorRange range_ = AVCOL_RANGE_UNSPECIFIED;
};

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_VIDEO_DECODER_RGB_CONVERTER_H_
