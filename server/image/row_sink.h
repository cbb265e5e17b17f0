#ifndef BALLAST_SERVER_IMAGE_ROW_SINK_H_
#define BALLAST_SERVER_IMAGE_ROW_SINK_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_ROW_SINK_H_
