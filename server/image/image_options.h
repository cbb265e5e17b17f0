#ifndef BALLAST_SERVER_IMAGE_IMAGE_OPTIONS_H_
#define BALLAST_SERVER_IMAGE_IMAGE_OPTIONS_H_

#include <cstdint>

#include "proto/config.pb.h"
#include "proto/image/model_resampling.h"
#include "proto/image/resample_weights.h"

namespace ballast {

// The least that serve.decode_memory may be.
inline constexpr uint64_t kMaxImageMemory = uint64_t{1} << 30;

struct ImageOptions {
  // The filter and whose pixels DecodeResized gives.
  Resampling resampling;
  // Decodes a JPEG at the smallest scale of 1/8, 1/4, 1/2 and 1 that is no
  // smaller than the wanted size, with plain instead of smooth chroma, and
  // resizes from there. Faster, but no longer Pillow's pixels:
  // docs/decisions/0007 has the difference. DecodeRgb and other formats are
  // unaffected.
  bool fast = false;
  // Applies the EXIF orientation, as Pillow's ImageOps.exif_transpose does; all
  // sizes are then those after turning. The Hugging Face processors do not do
  // this.
  bool apply_exif_orientation = false;
  // Most memory that work on one image may take, beyond its result. What an
  // image needs follows from its header (ImageDecoder::Needs); more than this
  // is a data fault. The same on every server.
  uint64_t max_memory = kMaxImageMemory;

  friend bool operator==(const ImageOptions&, const ImageOptions&) = default;
};

// The image options of `model`. Its `resample` may be unspecified: Pillow 12's
// pixels.
inline ImageOptions ImageOptionsOf(const v1::Model& model) {
  ImageOptions options;
  options.resampling = ResamplingOf(model);
  options.fast = model.resample() == v1::Model::RESAMPLE_FAST;
  options.apply_exif_orientation = model.exif_orientation();
  return options;
}

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_IMAGE_OPTIONS_H_
