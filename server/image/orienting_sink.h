#ifndef BALLAST_SERVER_IMAGE_ORIENTING_SINK_H_
#define BALLAST_SERVER_IMAGE_ORIENTING_SINK_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/image/exif.h"
#include "server/image/row_sink.h"
#include "server/image/scratch_arena.h"

namespace ballast {

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

#endif  // BALLAST_SERVER_IMAGE_ORIENTING_SINK_H_
