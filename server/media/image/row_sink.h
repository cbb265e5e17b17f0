#ifndef BALLAST_SERVER_MEDIA_IMAGE_ROW_SINK_H_
#define BALLAST_SERVER_MEDIA_IMAGE_ROW_SINK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/media/image/quad_kernels.h"
#include "server/sample/image_header.h"

namespace ballast {

// Working memory for one image at a time: allocated piece by piece, released
// all at once, and kept for the next image, so that images of the usual size
// never reach the allocator. Thread-compatible.
class ScratchArena {
 public:
  // Allocates at most `limit` bytes at a time; at most `keep` bytes survive
  // Reset.
  ScratchArena(uint64_t limit, uint64_t keep)
      : most_(limit), keep_(keep), limit_(limit) {}
  ScratchArena(const ScratchArena&) = delete;
  ScratchArena& operator=(const ScratchArena&) = delete;

  // Uninitialised memory at a multiple of 64 bytes, valid until Reset. nullptr:
  // over the limit, or the system is out of memory.
  void* Allocate(uint64_t bytes);
  template <class T>
  T* AllocateArray(uint64_t count) {
    return count > UINT64_MAX / sizeof(T)
               ? nullptr
               : static_cast<T*>(Allocate(count * sizeof(T)));
  }

  // Releases everything.
  void Reset();

  // Sets the limit from now on; at most the constructor's.
  void SetLimit(uint64_t limit) { limit_ = std::min(limit, most_); }

  // Why Allocate returned nullptr for `work`: a data fault if that would exceed
  // the limit, RESOURCE_EXHAUSTED if the system is out of memory.
  absl::Status Refusal(absl::string_view work) const;

  uint64_t limit() const { return limit_; }
  // Bytes allocated since Reset, padding included.
  uint64_t used() const { return used_; }
  // Bytes held from the system.
  uint64_t held() const;
  // How often memory was requested from the system.
  uint64_t system_allocations() const { return system_allocations_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  struct Block {
    std::unique_ptr<uint8_t, Free> memory;
    uint64_t size = 0;
    uint64_t used = 0;
  };
  bool AddBlock(uint64_t size);

  const uint64_t most_;
  const uint64_t keep_;
  uint64_t limit_;
  std::vector<Block> blocks_;  // pieces come from the last one
  uint64_t used_ = 0;
  uint64_t system_allocations_ = 0;
  bool is_system_out_ = false;  // of memory, since Reset
};

// Receives the rows of one image from its decoder, top to bottom, while they
// are in cache: the seam between decoding and all later work.
// Thread-compatible.
//
//   Begin(width, height);
//   while rows are left: write some of NextRows(), then RowsDone(how many)
//   Finish();
class RowSink {
 public:
  virtual ~RowSink() = default;

  // Errors: RESOURCE_EXHAUSTED (the memory that an image may take).
  virtual absl::Status Begin(uint32_t width, uint32_t height) = 0;

  // Destinations of the next rows, width*3 bytes of RGB each: at least one,
  // unless all have been written. Valid until RowsDone.
  virtual absl::Span<uint8_t* const> NextRows() = 0;

  // Reports that the first `count` of NextRows() are written. Neither this nor
  // NextRows allocates, fails or throws: decoders call them where they may
  // longjmp.
  virtual void RowsDone(size_t count) = 0;

  // Called once all rows are written. Errors: as Begin.
  virtual absl::Status Finish() { return absl::OkStatus(); }
};

// Writes a whole image to a sink that has begun.
inline void CopyRows(const uint8_t* pixels, uint32_t width, uint32_t height,
                     RowSink* sink) {
  const size_t stride = size_t{width} * 3;
  for (uint32_t y = 0; y < height;) {
    const absl::Span<uint8_t* const> rows = sink->NextRows();
    for (uint8_t* row : rows) std::memcpy(row, pixels + stride * y++, stride);
    sink->RowsDone(rows.size());
  }
}

// Writes a pixel of RGBA on white, as Pillow's paste and alpha_composite do.
inline void PutOnWhite(const uint8_t* rgba, uint8_t* rgb) {
  const uint32_t alpha = rgba[3];
  for (int c = 0; c < 3; ++c) {
    const uint32_t sum = rgba[c] * alpha + 255 * (255 - alpha) + 128;
    rgb[c] = static_cast<uint8_t>((sum + (sum >> 8)) >> 8);
  }
}

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

// Applies an orientation to an image on its way to `sink`, as Pillow's
// ImageOps.exif_transpose does. Buffers the whole image. Thread-compatible.
class OrientingSink : public RowSink {
 public:
  // Memory comes from `arena`. Neither pointer is owned.
  OrientingSink(Orientation orientation, ScratchArena* arena, RowSink* sink)
      : orientation_(orientation), arena_(arena), sink_(sink) {}

  absl::Status Begin(uint32_t width, uint32_t height) override;
  absl::Span<uint8_t* const> NextRows() override;
  void RowsDone(size_t count) override;
  absl::Status Finish() override;

 private:
  void WriteRow(uint32_t y, uint8_t* out) const;

  const Orientation orientation_;
  ScratchArena* const arena_;
  RowSink* const sink_;
  uint32_t width_ = 0;
  uint32_t height_ = 0;
  uint32_t done_ = 0;
  uint8_t* pixels_ = nullptr;
  uint8_t* next_row_ = nullptr;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_ROW_SINK_H_
