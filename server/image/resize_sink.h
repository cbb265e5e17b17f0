#ifndef BALLAST_SERVER_IMAGE_RESIZE_SINK_H_
#define BALLAST_SERVER_IMAGE_RESIZE_SINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "server/image/row_sink.h"
#include "server/image/scratch_arena.h"
#include "server/image/strip_resampler.h"
#include "server/image/table_cache.h"

namespace ballast {

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

#endif  // BALLAST_SERVER_IMAGE_RESIZE_SINK_H_
