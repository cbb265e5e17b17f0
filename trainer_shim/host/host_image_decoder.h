#ifndef BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_
#define BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/host/cpu_jpeg_engine.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/resample_plan.h"

namespace ballast {

// Decodes and resizes encoded images on the CPU, one after the other, in the
// steps of the GPU: planes, the horizontal pass, the vertical pass. Makes the
// same pixels as the server's ImageDecoder::DecodeResized. Holds the memory of
// the largest image so far: DecodeMemory of it. Thread-compatible.
class HostImageDecoder {
 public:
  // `resampling` of all images, as ResamplePlanner's.
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

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_HOST_IMAGE_DECODER_H_
