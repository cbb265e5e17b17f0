#ifndef BALLAST_TRAINER_SHIM_HOST_CPU_JPEG_ENGINE_H_
#define BALLAST_TRAINER_SHIM_HOST_CPU_JPEG_ENGINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// The engine without hardware: libjpeg-turbo's raw planes, one image after the
// other, in host memory. Used where a GPU has no JPEG engines, for images that
// they refuse, and as their oracle. libjpeg allocates a few rows for each
// image.
class CpuJpegEngine final : public JpegEngine {
 public:
  CpuJpegEngine();
  ~CpuJpegEngine() override;

  // Errors beside JpegEngine's: RESOURCE_EXHAUSTED (libjpeg has no memory).
  absl::Status Decode(absl::Span<const EncodedJpeg> images) override;
  // Decodes one image. Errors: as Decode, without naming the image.
  absl::Status DecodeOne(const EncodedJpeg& image);

  JpegEngineCounts counts() const override;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_CPU_JPEG_ENGINE_H_
