#ifndef BALLAST_SERVER_MEDIA_IMAGE_IMAGE_H_
#define BALLAST_SERVER_MEDIA_IMAGE_IMAGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/image/job_images.h"
#include "proto/image/resample_weights.h"
#include "server/sample/image_header.h"

namespace ballast {

// The least valid value of serve.decode_memory.
inline constexpr uint64_t kMaxImageMemory = uint64_t{1} << 30;

struct ImageOptions {
  // The filter, and the library whose pixels DecodeResized reproduces.
  Resampling resampling;
  // Decodes a JPEG at the smallest scale of 1/8, 1/4, 1/2 and 1 that is no
  // smaller than the wanted size, with plain instead of smooth chroma, and
  // resizes from there. Faster, but no longer Pillow's pixels:
  // docs/decisions/0007 has the difference. Decode and other formats are
  // unaffected.
  bool fast = false;
  // Applies the EXIF orientation, as Pillow's ImageOps.exif_transpose does; all
  // sizes are then sizes after turning. The Hugging Face processors do not do
  // this.
  bool apply_exif_orientation = false;
  // The colours of transparent pixels. All values but the two of white keep the
  // colours beneath.
  v1::Model::Transparency transparency = v1::Model::TRANSPARENCY_DROP;
  // Limit of the memory that work on one image may take, beyond its result. The
  // need follows from its bytes (ImageDecoder::Needs); more than this is a data
  // fault. The same on every server.
  uint64_t max_memory = kMaxImageMemory;

  friend bool operator==(const ImageOptions&, const ImageOptions&) = default;
};

// The image options of `model`. Its `resample` may be unspecified: Pillow 12's
// pixels.
inline ImageOptions GetImageOptions(const v1::Model& model) {
  ImageOptions options;
  options.resampling = GetResampling(model);
  options.fast = model.resample() == v1::Model::RESAMPLE_FAST;
  options.apply_exif_orientation = model.exif_orientation();
  options.transparency = model.transparency();
  return options;
}

// A library as `model.resample` and --resample name it.
constexpr absl::string_view ResampleName(ResampleLibrary library) {
  switch (library) {
    case ResampleLibrary::kPillow12:
      return "pillow12";
    case ResampleLibrary::kPillow13:
      return "pillow13";
    case ResampleLibrary::kTorchvision:
      break;
  }
  return "torchvision";
}

// 8-bit RGB, rows from the top, no gaps: height*width*3 bytes.
struct RgbImage {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;
};

// The size of an image under `options`; `bytes` may be cut after its header.
// Errors: as ReadImageHeader; a data fault also if decoding and turning it
// alone need more than options.max_memory, whatever is made of the pixels;
// OUT_OF_RANGE also if the orientation is wanted and is beyond `bytes`.
absl::StatusOr<ImageHeader> ReadImageSize(absl::string_view bytes,
                                          const ImageOptions& options);

// Decodes and resizes images, one after the other. Reuses its buffers, its
// tables and the memory of libjpeg and libpng, so that an image of a size seen
// before allocates nothing (except inside libwebp, and after an image that took
// more than kKeptMemory). Between images it holds at most kKeptMemory and its
// tables, about 1 MiB. Thread-compatible: give each thread its own. Does not
// block.
class ImageDecoder {
 public:
  static constexpr uint64_t kKeptMemory = uint64_t{16} << 20;

  explicit ImageDecoder(const ImageOptions& options = {});
  ~ImageDecoder();
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;

  // An upper bound of the memory that decoding the file takes, from its header
  // alone, or of a WebP from what precedes its pixels: Decode of it, its result
  // included, or with `width` and `height` DecodeResized to them. Errors: a
  // data fault (no image; more than options.max_memory).
  absl::StatusOr<uint64_t> Needs(absl::string_view bytes, uint32_t width = 0,
                                 uint32_t height = 0) const;

  // Decodes exactly as Pillow's Image.open(f).convert("RGB"), or as pasting the
  // image on white (options.transparency). Errors: a data
  // fault (not an image, damaged, truncated, too large, as Needs),
  // RESOURCE_EXHAUSTED (the machine is out of memory).
  absl::StatusOr<RgbImage> Decode(absl::string_view bytes);

  // Decodes and resizes in one pass, bit for bit as the library of
  // options.resampling does: each row is written to `out` as soon as its source
  // rows are decoded. `out` holds height*width*3 bytes; after an error its
  // content is unspecified. A size other than `expected` (the index's; the
  // format does not matter) is a data fault. Other errors: as Decode;
  // INVALID_ARGUMENT (size of `out`; a side of 0).
  absl::Status DecodeResized(absl::string_view bytes,
                             const ImageHeader& expected, uint32_t width,
                             uint32_t height, absl::Span<uint8_t> out);

  const ImageOptions& options() const;

  // Faults in the last image that were skipped, as Pillow does.
  uint64_t warnings() const;

  // Time that resizing took in the last DecodeResized. Resizing and decoding
  // are one pass; decoding took the rest.
  absl::Duration resize_time() const;

  struct Memory {
    uint64_t most_used = 0;    // by one image so far, beyond its result
    uint64_t held = 0;         // now, tables included
    uint64_t allocations = 0;  // of working memory from the system so far
  };
  Memory memory() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// As ImageDecoder::DecodeResized, with a temporary decoder.
absl::Status DecodeResized(absl::string_view bytes, const ImageHeader& expected,
                           uint32_t width, uint32_t height,
                           absl::Span<uint8_t> out);

// Resizes bit for bit as the library of `resampling` does. `out` holds
// height*width*3 bytes. Errors: INVALID_ARGUMENT (sizes that do not fit, a side
// of 0), RESOURCE_EXHAUSTED.
absl::Status Resize(const RgbImage& source, const Resampling& resampling,
                    uint32_t width, uint32_t height, absl::Span<uint8_t> out);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_IMAGE_H_
