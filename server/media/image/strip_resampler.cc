#include "server/media/image/strip_resampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"

namespace ballast {

const QuadTable* TableCache::Find(QuadFormat format,
                                  const Resampling& resampling, uint32_t source,
                                  uint32_t output) {
  ++uses_;
  for (Slot& slot : slots_) {
    if (slot.last_use != 0 && slot.table.source() == source &&
        slot.table.output() == output && slot.table.format() == format &&
        slot.table.resampling() == resampling) {
      slot.last_use = uses_;
      return &slot.table;
    }
  }
  // Reuses the memory of other tables well before the limit is reached.
  Slot* slot = Oldest(bytes() < kMaxBytes / 2);
  slot->table.Build(format, resampling, source, output);
  slot->last_use = uses_;
  while (bytes() > kMaxBytes) {
    Slot* oldest = Oldest(false);
    if (oldest->last_use == 0) break;
    *oldest = Slot();
  }
  return &slot->table;
}

// The slot used longest ago. With `or_empty` an empty slot may be returned;
// otherwise one is returned only if no slot is filled. Never one of the last
// two found: they are still valid.
TableCache::Slot* TableCache::Oldest(bool or_empty) {
  Slot* oldest = nullptr;
  Slot* empty = nullptr;
  for (Slot& slot : slots_) {
    if (slot.last_use == 0) {
      if (empty == nullptr) empty = &slot;
    } else if (slot.last_use + 1 < uses_ &&
               (oldest == nullptr || slot.last_use < oldest->last_use)) {
      oldest = &slot;
    }
  }
  // All slots but two, at most, are empty or old.
  if (oldest == nullptr || (or_empty && empty != nullptr)) return empty;
  return oldest;
}

size_t TableCache::bytes() const {
  size_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.table.bytes();
  return bytes;
}

namespace {

constexpr uint32_t kStripQuads = kStripRows / 4;

// libjpeg-turbo writes rows that begin at multiples of 16 or 32 bytes with
// non-temporal stores; the next step would have to fetch them from memory. Fits
// into the slack of StripStride.
constexpr size_t kMisalignment = 8;

// For the larger format, so that the verdict is the same on every machine.
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

// The largest number of lines between the last one computed and the first one
// that some output row still needs.
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
