#include "server/image/strip_resampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr uint32_t kStripQuads = kStripRows / 4;

// libjpeg-turbo writes rows that begin at multiples of 16 or 32 bytes with
// non-temporal stores; the next step would have to fetch them from memory. Fits
// into the slack of StripStride.
constexpr size_t kMisalignment = 8;

// Of the larger format, so that the verdict is the same on every machine.
uint64_t TableBytes(ResampleFilter filter, uint32_t width, uint32_t height,
                    uint32_t new_width, uint32_t new_height) {
  return QuadTable::MostBytes(QuadFormat::kHalves, filter, width, new_width) +
         QuadTable::MostBytes(QuadFormat::kHalves, filter, height, new_height);
}

}  // namespace

uint64_t StripResampler::MostBytes(ResampleFilter filter, uint32_t width,
                                   uint32_t height, uint32_t new_width,
                                   uint32_t new_height) {
  // Quads of the source that one output row reaches.
  const double shrinks =
      std::max(1.0, static_cast<double>(height) / new_height);
  const auto reach =
      static_cast<uint64_t>(2 * FilterRadius(filter) * shrinks / 4) + 3;
  const uint64_t quads =
      std::min<uint64_t>(reach, height / 4 + 1) + 2 * kStripQuads;
  constexpr uint64_t kAlignment = 64;
  return TableBytes(filter, width, height, new_width, new_height) +
         StripStride(width) * kStripRows + TileBytes(width) +
         quads * (LineBytes(new_width) + 2 * sizeof(uint8_t*)) + 8 * kAlignment;
}

// Lines that output row `y` needs.
uint32_t StripResampler::QuadsNeeded(uint32_t y) const {
  const QuadTaps& taps = vertical_->taps()[y];
  const uint32_t end = taps.first + taps.count + (taps.shift != 0 ? 1 : 0);
  return std::min<uint32_t>(end, (vertical_->source() + 3) / 4);
}

// The most lines between the last one computed and the first one that some
// output row still needs.
uint64_t StripResampler::RingSize() const {
  uint64_t made = 0;
  uint64_t size = kStripQuads;
  for (uint32_t y = 0; y < vertical_->output(); ++y) {
    made = std::max<uint64_t>(made, RoundUp(QuadsNeeded(y), kStripQuads));
    size = std::max(size, made - vertical_->taps()[y].first);
  }
  return size;
}

absl::Status StripResampler::TooMuch(uint32_t width, uint32_t height) const {
  return arena_->Refusal(absl::StrCat("resizing ", width, "x", height,
                                      " pixels to ", width_, "x", height_));
}

absl::Status StripResampler::Begin(uint32_t width, uint32_t height) {
  if (TableBytes(resampling_.filter, width, height, width_, height_) >
      arena_->limit()) {
    return TooMuch(width, height);
  }
  const QuadFormat format = KernelFormat();
  horizontal_ = tables_->Find(format, resampling_, width, width_);
  vertical_ = tables_->Find(format, resampling_, height, height_);
  rows_left_ = height;
  strip_rows_ = quads_ = next_ = 0;
  ring_size_ = RingSize();

  const size_t stride = StripStride(width);
  auto* strip = arena_->AllocateArray<uint8_t>(stride * kStripRows);
  tile_ = arena_->AllocateArray<uint8_t>(TileBytes(width));
  ring_ = arena_->AllocateArray<uint8_t*>(ring_size_);
  lines_ = arena_->AllocateArray<const uint8_t*>(vertical_->most_quads() + 1);
  const size_t line_bytes = LineBytes(width_);
  auto* ring = arena_->AllocateArray<uint8_t>(line_bytes * ring_size_);
  if (strip == nullptr || tile_ == nullptr || ring_ == nullptr ||
      lines_ == nullptr || ring == nullptr) {
    return TooMuch(width, height);
  }
  for (size_t row = 0; row < kStripRows; ++row) {
    rows_[row] = strip + row * stride + kMisalignment;
  }
  for (uint64_t quad = 0; quad < ring_size_; ++quad) {
    ring_[quad] = ring + quad * line_bytes;
  }
  return absl::OkStatus();
}

absl::Span<uint8_t* const> StripResampler::NextRows() {
  return {rows_ + strip_rows_,
          std::min<size_t>(kStripRows - strip_rows_, rows_left_)};
}

void StripResampler::RowsDone(size_t count) {
  strip_rows_ += count;
  rows_left_ -= count;
  if (strip_rows_ < kStripRows && rows_left_ > 0) return;
  // Measured once per strip, so that the cost of the clock is negligible.
  const auto start = std::chrono::steady_clock::now();
  ResampleStrip();
  WriteReadyRows();
  busy_ += std::chrono::steady_clock::now() - start;
  strip_rows_ = 0;
}

// The last strip may lack rows; the pixels in their place have no weight.
void StripResampler::ResampleStrip() {
  TileStrip(rows_[0], horizontal_->source(), tile_);
  uint8_t* lines[kStripQuads];
  for (uint32_t i = 0; i < kStripQuads; ++i) {
    lines[i] = ring_[(quads_ + i) % ring_size_];
  }
  ResampleTile(tile_, *horizontal_, lines);
  quads_ += kStripQuads;
}

void StripResampler::WriteReadyRows() {
  const size_t stride = size_t{width_} * kChannels;
  for (; next_ < height_ && QuadsNeeded(next_) <= quads_; ++next_) {
    const QuadTaps& taps = vertical_->taps()[next_];
    for (uint32_t i = 0; i <= taps.count; ++i) {
      lines_[i] = ring_[(taps.first + i) % ring_size_];
    }
    ResampleLines(lines_, *vertical_, next_,
                  out_.subspan(next_ * stride, stride));
  }
}

}  // namespace ballast
