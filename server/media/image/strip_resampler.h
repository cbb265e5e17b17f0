#ifndef BALLAST_SERVER_MEDIA_IMAGE_STRIP_RESAMPLER_H_
#define BALLAST_SERVER_MEDIA_IMAGE_STRIP_RESAMPLER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "server/media/image/quad_kernels.h"
#include "server/media/image/quad_table.h"
#include "server/media/image/row_sink.h"

namespace ballast {

// Caches the most recently used tables, since photographs come in few sizes. A
// new table takes the slot and memory of the least recently used one.
// Thread-compatible.
class TableCache {
 public:
  // Limit of the bytes of all tables together, except for the two used last.
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  // The table for these lengths. Valid until the second Find after this one.
  // Neither length is 0.
  const QuadTable* Find(QuadFormat format, const Resampling& resampling,
                        uint32_t source, uint32_t output);

  // Memory held, in bytes.
  size_t bytes() const;

 private:
  struct Slot {
    QuadTable table;
    uint64_t last_use = 0;  // 0: empty
  };
  Slot* Oldest(bool or_empty);

  std::array<Slot, 32> slots_;
  uint64_t uses_ = 0;
};

// Resizes an image while it is decoded, along x and then along
// y, bit for bit as the library of its resampling does. A strip of 16 rows is
// resampled along x into a ring of lines; every output row whose lines are
// complete is written directly to its place. No full-size image is ever held,
// only as many lines as one output row needs. Thread-compatible.
class StripResampler : public RowSink {
 public:
  // Output is width x height, neither 0; `out` holds height*width*3 bytes.
  // Memory comes from `arena` and is valid until its Reset. Neither arena nor
  // tables are owned.
  StripResampler(uint32_t width, uint32_t height, const Resampling& resampling,
                 absl::Span<uint8_t> out, ScratchArena* arena,
                 TableCache* tables)
      : width_(width),
        height_(height),
        resampling_(resampling),
        out_(out),
        arena_(arena),
        tables_(tables) {}

  // An upper bound of the memory that resizing takes, tables included. The same
  // on every machine.
  static uint64_t MostBytes(ResampleFilter filter, uint32_t width,
                            uint32_t height, uint32_t new_width,
                            uint32_t new_height);

  absl::Status Begin(uint32_t width, uint32_t height) override;
  absl::Span<uint8_t* const> NextRows() override;
  void RowsDone(size_t count) override;

  // Time spent resampling, excluding the decoder's time.
  std::chrono::nanoseconds busy() const { return busy_; }

 private:
  // The error for an image of this size.
  absl::Status TooMuch(uint32_t width, uint32_t height) const;
  uint32_t QuadsNeeded(uint32_t y) const;
  uint64_t RingSize() const;
  void ResampleStrip();
  void WriteReadyRows();

  const uint32_t width_;
  const uint32_t height_;
  const Resampling resampling_;
  const absl::Span<uint8_t> out_;
  ScratchArena* const arena_;
  TableCache* const tables_;

  const QuadTable* horizontal_ = nullptr;
  const QuadTable* vertical_ = nullptr;
  uint8_t* rows_[kStripRows] = {};  // the rows of the strip
  uint8_t* tile_ = nullptr;
  uint8_t** ring_ = nullptr;  // lines; quad q's at q % ring_size_
  uint64_t ring_size_ = 0;
  const uint8_t** lines_ = nullptr;  // the lines of one output row
  uint32_t rows_left_ = 0;           // rows not yet decoded
  uint32_t strip_rows_ = 0;          // rows of the strip already written
  uint32_t quads_ = 0;               // lines computed so far
  uint32_t next_ = 0;                // output row
  std::chrono::nanoseconds busy_{0};
};

// Resizes bit for bit as the library of `resampling` does. Thread-compatible.
class ResizeSink : public RowSink {
 public:
  // Arguments as for StripResampler.
  ResizeSink(uint32_t width, uint32_t height, const Resampling& resampling,
             absl::Span<uint8_t> out, ScratchArena* arena, TableCache* tables)
      : width_(width),
        height_(height),
        resampling_(resampling),
        out_(out),
        arena_(arena),
        tables_(tables) {}

  // An upper bound of the memory that resizing takes, tables included. The same
  // on every machine.
  static uint64_t MostBytes(const Resampling& resampling, uint32_t width,
                            uint32_t height, uint32_t new_width,
                            uint32_t new_height);

  absl::Status Begin(uint32_t width, uint32_t height) override;
  absl::Span<uint8_t* const> NextRows() override { return first_->NextRows(); }
  void RowsDone(size_t count) override { first_->RowsDone(count); }
  absl::Status Finish() override;

  // Time spent resampling, excluding the decoder's time.
  std::chrono::nanoseconds busy() const {
    return second_busy_ +
           (first_.has_value() ? first_->busy() : std::chrono::nanoseconds(0));
  }

 private:
  const uint32_t width_;
  const uint32_t height_;
  const Resampling resampling_;
  const absl::Span<uint8_t> out_;
  ScratchArena* const arena_;
  TableCache* const tables_;
  std::optional<StripResampler> first_;
  // The image resized along y only, source_width_ x height_ pixels; or null.
  uint8_t* narrow_ = nullptr;
  uint32_t source_width_ = 0;
  std::chrono::nanoseconds second_busy_{0};
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_STRIP_RESAMPLER_H_
