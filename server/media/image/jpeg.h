#ifndef BALLAST_SERVER_MEDIA_IMAGE_JPEG_H_
#define BALLAST_SERVER_MEDIA_IMAGE_JPEG_H_

#include <cstdint>
#include <cstdio>
#include <memory>

// After <cstdio>, whose types it uses.
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/media/image/row_sink.h"
#include "server/sample/image_header.h"

namespace ballast {

// Decodes JPEGs, one after the other, with one libjpeg decompressor.
// Thread-compatible.
class JpegDecoder {
 public:
  // Memory comes from `arena`, not owned.
  explicit JpegDecoder(ScratchArena* arena);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Writes the rows of `bytes`, a JPEG of width x height pixels, to `sink`:
  // calls Begin, not Finish. Given a size to cover, decodes at the smallest
  // scale of 1/8, 1/4, 1/2 and 1 that is no smaller than that size, and with
  // plain instead of smooth chroma: the `fast` setting. Errors:
  // INVALID_ARGUMENT (damaged, truncated, another size); RESOURCE_EXHAUSTED
  // (the arena's limit); the sink's.
  absl::Status Decode(absl::string_view bytes, ImageSize size,
                      const ImageSize* cover, RowSink* sink);

  // Faults in the last image that libjpeg, like Pillow, skipped.
  uint64_t warnings() const;

  // Ends the last image; afterwards the arena may be reset.
  void Release();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Makes libjpeg allocate every image's memory from `arena`, which must outlive
// the images; libjpeg's own manager calls malloc for each image. Memory that
// the decompressor allocated when it was created is not affected. Beyond the
// arena's limit libjpeg fails with JERR_OUT_OF_MEMORY.
//
// Between two images call ResetJpegMemory and then reset the arena.
void InstallJpegMemory(jpeg_decompress_struct* info, ScratchArena* arena);

// Ends the image, if one was begun, and forgets its tables: a following image
// without its own tables would otherwise use them.
void ResetJpegMemory(jpeg_decompress_struct* info);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_JPEG_H_
