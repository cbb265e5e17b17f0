#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_JPEG_ENGINE_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_JPEG_ENGINE_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Decodes to planes in device memory: on the GPU's JPEG engines through
// nvJPEG's hardware backend, and on the host (CpuJpegEngine, then a copy) the
// images that they refuse, or all of them where there are no engines or no
// nvJPEG. Work on the device runs on a stream of high priority of its own:
// nvJPEG's conversion kernels would otherwise wait for free multiprocessors.
// Thread-compatible: give each batch in flight its own engine and thread.
class DeviceJpegEngine final : public JpegEngine {
 public:
  enum class Hardware {
    kIfThere,  // the host decodes without it
    kNever,    // the host decodes all
  };

  // For the current device, which must be current when it is destroyed; Decode
  // may be called from any thread. Missing engines are no error: hardware()
  // says why. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceJpegEngine>> Create(
      Hardware hardware);
  // Waits for the device.
  ~DeviceJpegEngine() override;

  // Blocks, without spinning, until the planes are complete: work that is
  // enqueued on any stream afterwards may read them. If the engines fail on a
  // batch, the host decodes all of it. Errors beside JpegEngine's: as
  // CudaStatus.
  absl::Status Decode(absl::Span<const EncodedJpeg> images) override;

  JpegEngineCounts counts() const override;

  // Images that the engines decode at the same time; 1 without engines.
  size_t at_a_time() const;

  // OK if engines decode; else FAILED_PRECONDITION with the reason.
  const absl::Status& hardware() const;

 private:
  class Impl;
  explicit DeviceJpegEngine(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_JPEG_ENGINE_H_
