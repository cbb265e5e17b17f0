#ifndef BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_
#define BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// The engine without hardware: libjpeg-turbo's raw planes, one image after the
// other, in host memory. Used if a GPU has no JPEG engines, for images that
// engines refuse, and as the engines' oracle. libjpeg allocates a few rows for
// each image.
class CpuJpegEngine final : public JpegEngine {
 public:
  CpuJpegEngine();
  ~CpuJpegEngine() override;

  // Further errors: RESOURCE_EXHAUSTED (libjpeg has no memory).
  absl::Status Decode(absl::Span<const EncodedJpeg> images) override;
  // Decodes one image. Errors: as Decode, without naming the image.
  absl::Status DecodeOne(const EncodedJpeg& image);

  JpegEngineCounts counts() const override;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Decodes and resizes encoded images on the CPU, one after the other, in the
// steps of the GPU: planes, the horizontal pass, the vertical pass. Makes the
// same pixels as the server's ImageDecoder::DecodeResized. Holds memory for the
// largest image so far: its DecodeMemory. Thread-compatible.
class HostImageDecoder {
 public:
  // `resampling` is for all images, as ResamplePlanner's.
  explicit HostImageDecoder(const Resampling& resampling = {})
      : planner_(resampling) {}

  // `bytes` is a JPEG that JudgeForEngines does not refuse, with its form.
  // `out` holds height*width*3 bytes. Errors: INVALID_ARGUMENT (a side of 0,
  // the size of `out`; damaged, not of `form`; resized along the height first),
  // RESOURCE_EXHAUSTED.
  absl::Status DecodeResized(absl::string_view bytes, const PlaneForm& form,
                             uint32_t width, uint32_t height,
                             absl::Span<uint8_t> out);

  JpegEngineCounts counts() const { return engine_.counts(); }

 private:
  CpuJpegEngine engine_;
  ResamplePlanner planner_;
  std::vector<uint8_t> planes_;
  std::vector<uint8_t> narrow_;
  std::vector<uint8_t> row_;
};

// Makes the pixels of a batch's encoded images on the CPU, one after the other,
// into memory that grows to the pixels of the largest batch so far.
// Thread-compatible.
class EncodedUnpacker {
 public:
  // `resampling` is for all images, as ResamplePlanner's.
  explicit EncodedUnpacker(const Resampling& resampling)
      : decoder_(resampling) {}

  // Points images[piece.image].pixels of each of `pieces` to the image's
  // pixels, valid until the next call. Errors: DATA_LOSS (a file that cannot be
  // decoded), RESOURCE_EXHAUSTED, both naming the position.
  absl::Status Unpack(absl::Span<const EncodedPiece> pieces,
                      absl::Span<ImagePiece> images);

  JpegEngineCounts counts() const { return decoder_.counts(); }

 private:
  HostImageDecoder decoder_;
  std::vector<uint8_t> pixels_;
};

// The kernels of trainer_shim/cuda/plane_kernels.h on the CPU, and their
// oracle. Together they make the same pixels as the server's decode and resize.

// Row `y` of a picture as 8-bit RGB, `image.width` pixels: upsampled chroma and
// colours.
void PlaneRowToRgb(const ResampleImage& image, const uint8_t* planes,
                   uint32_t y, uint8_t* rgb);

// The horizontal pass over every row of every image. `narrow`: the plan's
// narrow_bytes. `row`: 3 * the plan's most_width bytes, for a row of pixels.
void NarrowRows(const ResamplePlan& plan, const uint8_t* planes,
                absl::Span<uint8_t> row, uint8_t* narrow);

// The vertical pass, to each image's pixels in `out`.
void ShortenColumns(const ResamplePlan& plan, const uint8_t* narrow,
                    uint8_t* out);

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_
