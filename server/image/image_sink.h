#ifndef BALLAST_SERVER_IMAGE_IMAGE_SINK_H_
#define BALLAST_SERVER_IMAGE_IMAGE_SINK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "server/image/quad_kernels.h"
#include "server/image/row_sink.h"

namespace ballast {

// Writes rows to contiguous memory. Thread-compatible.
class ImageSink : public RowSink {
 public:
  // `pixels` holds width*height*3 bytes.
  explicit ImageSink(uint8_t* pixels) : next_(pixels) {}

  absl::Status Begin(uint32_t width, uint32_t height) override {
    stride_ = size_t{width} * kChannels;
    rows_left_ = height;
    return absl::OkStatus();
  }

  absl::Span<uint8_t* const> NextRows() override {
    const size_t count = std::min<size_t>(rows_left_, kStripRows);
    for (size_t i = 0; i < count; ++i) rows_[i] = next_ + i * stride_;
    return {rows_, count};
  }

  void RowsDone(size_t count) override {
    next_ += count * stride_;
    rows_left_ -= static_cast<uint32_t>(count);
  }

 private:
  uint8_t* next_;
  size_t stride_ = 0;
  uint32_t rows_left_ = 0;
  uint8_t* rows_[kStripRows] = {};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_IMAGE_SINK_H_
