#include "server/image/resize_sink.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/resize_order.h"

namespace ballast {

uint64_t ResizeSink::MostBytes(const Resampling& resampling, uint32_t width,
                               uint32_t height, uint32_t new_width,
                               uint32_t new_height) {
  if (!IsResizedAlongYFirst(resampling.library, width, height, new_width,
                            new_height)) {
    return StripResampler::MostBytes(resampling.filter, width, height,
                                     new_width, new_height);
  }
  return uint64_t{width} * new_height * kChannels +
         StripResampler::MostBytes(resampling.filter, width, height, width,
                                   new_height) +
         StripResampler::MostBytes(resampling.filter, width, new_height,
                                   new_width, new_height);
}

absl::Status ResizeSink::Begin(uint32_t width, uint32_t height) {
  source_width_ = width;
  narrow_ = nullptr;
  if (!IsResizedAlongYFirst(resampling_.library, width, height, width_,
                            height_)) {
    first_.emplace(width_, height_, resampling_, out_, arena_, tables_);
    return first_->Begin(width, height);
  }
  const uint64_t bytes = uint64_t{width} * height_ * kChannels;
  narrow_ = arena_->AllocateArray<uint8_t>(bytes);
  if (narrow_ == nullptr) {
    return arena_->Refusal(absl::StrCat("resizing ", width, "x", height,
                                        " pixels to ", width_, "x", height_));
  }
  first_.emplace(width, height_, resampling_, absl::MakeSpan(narrow_, bytes),
                 arena_, tables_);
  return first_->Begin(width, height);
}

absl::Status ResizeSink::Finish() {
  BALLAST_RETURN_IF_ERROR(first_->Finish());
  if (narrow_ == nullptr) return absl::OkStatus();
  StripResampler second(width_, height_, resampling_, out_, arena_, tables_);
  BALLAST_RETURN_IF_ERROR(second.Begin(source_width_, height_));
  CopyRows(narrow_, source_width_, height_, &second);
  second_busy_ += second.busy();
  return second.Finish();
}

}  // namespace ballast
