#include "server/image/row_sink.h"

#include "absl/strings/str_cat.h"

namespace ballast {

absl::Status OrientingSink::Begin(uint32_t width, uint32_t height) {
  width_ = width;
  height_ = height;
  done_ = 0;
  pixels_ = arena_->AllocateArray<uint8_t>(uint64_t{width} * height * 3);
  if (pixels_ == nullptr) {
    return arena_->Refusal(
        absl::StrCat("turning ", width, "x", height, " pixels as EXIF says"));
  }
  next_row_ = pixels_;
  return SwapsSides(orientation_) ? sink_->Begin(height, width)
                                  : sink_->Begin(width, height);
}

absl::Span<uint8_t* const> OrientingSink::NextRows() {
  return {&next_row_, done_ < height_ ? 1u : 0u};
}

void OrientingSink::RowsDone(size_t count) {
  done_ += count;
  next_row_ += count * width_ * 3;
}

absl::Status OrientingSink::Finish() {
  const uint32_t rows = SwapsSides(orientation_) ? width_ : height_;
  for (uint32_t y = 0; y < rows; ++y) {
    WriteRow(y, sink_->NextRows()[0]);
    sink_->RowsDone(1);
  }
  return sink_->Finish();
}

// Writes row `y` of the turned image: steps from its first pixel through the
// stored image along a row or a column, forwards or backwards.
void OrientingSink::WriteRow(uint32_t y, uint8_t* out) const {
  const bool swaps = SwapsSides(orientation_);
  const Orientation o = orientation_;
  const bool from_right = o == 2 || o == 3 || o == 7 || o == 8;
  const bool from_bottom = o == 3 || o == 4 || o == 6 || o == 7;
  const size_t along = swaps ? height_ : width_;
  const size_t x0 =
      swaps ? (from_right ? width_ - 1 - y : y) : (from_right ? width_ - 1 : 0);
  const size_t y0 = swaps ? (from_bottom ? height_ - 1 : 0)
                          : (from_bottom ? height_ - 1 - y : y);
  const ptrdiff_t stride = ptrdiff_t{3} * width_;
  const ptrdiff_t step =
      swaps ? (from_bottom ? -stride : stride) : (from_right ? -3 : 3);
  const uint8_t* from = pixels_ + y0 * stride + x0 * 3;
  for (size_t i = 0; i < along; ++i, out += 3) {
    std::memcpy(out, from + static_cast<ptrdiff_t>(i) * step, 3);
  }
}

}  // namespace ballast
