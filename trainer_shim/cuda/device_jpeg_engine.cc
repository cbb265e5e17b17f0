#include "trainer_shim/cuda/device_jpeg_engine.h"

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/image/plane_form.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/cuda/current_device.h"
#include "trainer_shim/cuda/nvjpeg_decoder.h"
#include "trainer_shim/host/cpu_jpeg_engine.h"

namespace ballast {

class DeviceJpegEngine::Impl {
 public:
  absl::Status Start(Hardware hardware) {
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaGetDevice(&device_), "asking for the current device"));
    BALLAST_ASSIGN_OR_RETURN(stream_, CudaStream::CreateUrgent());
    BALLAST_ASSIGN_OR_RETURN(done_, Event::Create());
    if (hardware == Hardware::kNever) {
      hardware_ = absl::FailedPreconditionError("JPEG engines are not wanted");
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<NvjpegDecoder>> decoder =
        NvjpegDecoder::Create(stream_.get());
    hardware_ = decoder.status();
    if (decoder.ok()) decoder_ = *std::move(decoder);
    return absl::OkStatus();
  }

  ~Impl() {
    if (stream_.get() != nullptr) stream_.Synchronize().IgnoreError();
  }

  absl::Status Decode(absl::Span<const EncodedJpeg> images) {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    // nvJPEG fails in a thread without a context. A new thread has none, even
    // though the device counts as its current one.
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaSetDevice(device_), "choosing the device"));
    by_hardware_.clear();
    by_host_.clear();
    for (const EncodedJpeg& image : images) {
      const bool takes = decoder_ != nullptr && decoder_->Takes(image);
      (takes ? by_hardware_ : by_host_).push_back(&image);
    }
    if (!by_hardware_.empty()) {
      const absl::Status status = decoder_->Enqueue(by_hardware_);
      if (!status.ok()) {
        Log(LogLevel::kWarning,
            absl::StrCat(status.message(), "; the host decodes them instead"));
        by_host_.insert(by_host_.end(), by_hardware_.begin(),
                        by_hardware_.end());
        by_hardware_.clear();
      }
    }
    // The host decodes while the engines do.
    BALLAST_RETURN_IF_ERROR(DecodeOnHost());
    BALLAST_RETURN_IF_ERROR(done_.Record(stream_.get()));
    BALLAST_RETURN_IF_ERROR(done_.Wait());
    counts_.by_hardware += by_hardware_.size();
    counts_.by_host += by_host_.size();
    for (const EncodedJpeg& image : images) counts_.bytes += image.bytes.size();
    return absl::OkStatus();
  }

  size_t at_a_time() const {
    return decoder_ == nullptr ? 1 : decoder_->at_a_time();
  }

  JpegEngineCounts counts_;
  absl::Status hardware_;

 private:
  absl::Status DecodeOnHost() {
    uint64_t bytes = 0;
    for (const EncodedJpeg* image : by_host_) {
      bytes += LayOutPlanes(image->form).bytes;
    }
    BALLAST_RETURN_IF_ERROR(staging_.Reserve(bytes));
    uint8_t* to = staging_.data();
    for (const EncodedJpeg* image : by_host_) {
      EncodedJpeg staged = *image;
      staged.planes = to;
      const absl::Status status = host_.DecodeOne(staged);
      if (!status.ok()) {
        // Work on the planes must not outlast this call.
        stream_.Synchronize().IgnoreError();
        return absl::Status(status.code(),
                            absl::StrCat("image at position ", image->position,
                                         ": ", status.message()));
      }
      const uint64_t size = LayOutPlanes(image->form).bytes;
      BALLAST_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(image->planes, to, size,
                                     cudaMemcpyHostToDevice, stream_.get()),
                     "copy of planes to the device"));
      to += size;
    }
    return absl::OkStatus();
  }

  int device_ = 0;
  CudaStream stream_;
  Event done_;
  std::unique_ptr<NvjpegDecoder> decoder_;
  CpuJpegEngine host_;
  PinnedBuffer staging_;
  std::vector<const EncodedJpeg*> by_hardware_;
  std::vector<const EncodedJpeg*> by_host_;
};

DeviceJpegEngine::DeviceJpegEngine(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

DeviceJpegEngine::~DeviceJpegEngine() = default;

absl::StatusOr<std::unique_ptr<DeviceJpegEngine>> DeviceJpegEngine::Create(
    Hardware hardware) {
  auto impl = std::make_unique<Impl>();
  BALLAST_RETURN_IF_ERROR(impl->Start(hardware));
  return std::unique_ptr<DeviceJpegEngine>(
      new DeviceJpegEngine(std::move(impl)));
}

absl::Status DeviceJpegEngine::Decode(absl::Span<const EncodedJpeg> images) {
  const absl::Time begin = Clock::Real()->Now();
  const absl::Status status = impl_->Decode(images);
  impl_->counts_.busy += Clock::Real()->Now() - begin;
  return status;
}

size_t DeviceJpegEngine::at_a_time() const { return impl_->at_a_time(); }

JpegEngineCounts DeviceJpegEngine::counts() const { return impl_->counts_; }

const absl::Status& DeviceJpegEngine::hardware() const {
  return impl_->hardware_;
}

}  // namespace ballast
