#include "server/video/decoder/rgb_converter.h"

namespace ballast::video_decoder {

bool RgbConverter::Convert(const AVFrame& frame, uint8_t* rows, uint32_t stride,
                           Fault* fault) {
  const auto format = static_cast<AVPixelFormat>(frame.format);
  if (frame.colorspace != colorspace_ || frame.color_range != range_) {
    sws_freeContext(context_);
    context_ = nullptr;
  }
  const SwsContext* const last = context_;
  context_ = sws_getCachedContext(context_, frame.width, frame.height, format,
                                  frame.width, frame.height, AV_PIX_FMT_RGB24,
                                  SWS_BILINEAR, nullptr, nullptr, nullptr);
  if (context_ == nullptr) {
    *fault = {Outcome::kRefused, "its pixel format cannot become RGB"};
    return false;
  }
  colorspace_ = frame.colorspace;
  range_ = frame.color_range;
  if (context_ != last) SetColours(frame);
  uint8_t* const to[4] = {rows};
  const int strides[4] = {static_cast<int>(stride)};
  const int written = sws_scale(context_, frame.data, frame.linesize, 0,
                                frame.height, to, strides);
  if (written == frame.height) return true;
  *fault = GetFault(written, "converting to RGB");
  return false;
}

void RgbConverter::SetColours(const AVFrame& frame) {
  int* old_matrix;
  int* old_target;
  int is_full, target_full, brightness, contrast, saturation;
  if (sws_getColorspaceDetails(context_, &old_matrix, &is_full, &old_target,
                               &target_full, &brightness, &contrast,
                               &saturation) < 0) {
    return;  // not of YUV
  }
  // Formats such as yuvj420p have the full range whatever the frame says.
  if (frame.color_range == AVCOL_RANGE_JPEG) is_full = 1;
  const int* matrix = sws_getCoefficients(frame.colorspace);
  sws_setColorspaceDetails(context_, matrix, is_full, matrix, target_full,
                           brightness, contrast, saturation);
}

}  // namespace ballast::video_decoder
