#include "trainer_shim/cuda/cuda_handles.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::StatusCode GetCode(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return absl::StatusCode::kOk;
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorStubLibrary:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::Status(GetCode(error),
                      absl::StrCat(what, ": ", cudaGetErrorName(error), " (",
                                   cudaGetErrorString(error), ")"));
}

namespace {

absl::Status ExchangeCaptureMode(cudaStreamCaptureMode* mode) {
  return CudaStatus(cudaThreadExchangeStreamCaptureMode(mode),
                    "relaxing the capture mode");
}

}  // namespace

CurrentDevice::CurrentDevice(int device) {
  status_ = CudaStatus(cudaGetDevice(&before_), "asking for the device");
  if (status_.ok() && device != before_) {
    status_ = CudaStatus(cudaSetDevice(device), "choosing the device");
    changed_ = status_.ok();
  }
  if (status_.ok()) status_ = ExchangeCaptureMode(&mode_);
  relaxed_ = status_.ok();
}

CurrentDevice::~CurrentDevice() {
  if (relaxed_) cudaThreadExchangeStreamCaptureMode(&mode_);
  if (changed_) cudaSetDevice(before_);
}

absl::Status UseDevice(int device) {
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(device), "choosing the device"));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return ExchangeCaptureMode(&mode);
}

bool IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaErrorStreamCaptureImplicit) {
    // The answer, for the legacy default stream: clear it as the last error.
    if (cudaPeekAtLastError() == error) cudaGetLastError();
    return true;
  }
  return error == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

absl::Status CheckNotCapturing(cudaStream_t stream) {
  if (!IsCapturing(stream)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the stream is capturing a CUDA graph, which cannot contain the work of "
      "a batch; call again after the end of the capture, or on another stream");
}

absl::Status LoadKernels(std::initializer_list<const void*> kernels) {
  for (const void* kernel : kernels) {
    if (kernel == nullptr) continue;
    cudaFuncAttributes attributes;
    BALLAST_RETURN_IF_ERROR(CudaStatus(
        cudaFuncGetAttributes(&attributes, kernel), "loading a kernel"));
  }
  return absl::OkStatus();
}

absl::Status LaunchKernel(const void* kernel, const Grid& grid,
                          cudaStream_t stream, void** arguments,
                          absl::string_view what) {
  return CudaStatus(
      cudaLaunchKernel(kernel, dim3(static_cast<uint32_t>(grid.blocks)),
                       dim3(grid.threads), arguments, grid.shared, stream),
      what);
}

namespace {

// A destructor cannot return an error. The call that first got the device's
// error has reported it.
void LogFailure(cudaError_t error, absl::string_view what) {
  const absl::Status status = CudaStatus(error, what);
  if (!status.ok()) LogError(status.message());
}

}  // namespace

absl::StatusOr<Event> Event::Create() {
  return CreateWith(cudaEventDisableTiming);
}

absl::StatusOr<Event> Event::CreateTimed() {
  return CreateWith(cudaEventDefault);
}

absl::StatusOr<Event> Event::CreateWith(unsigned flags) {
  cudaEvent_t event = nullptr;
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&event, flags | cudaEventBlockingSync),
      "making an event"));
  Event made;
  made.event_.reset(event);
  return made;
}

absl::Status Event::Record(cudaStream_t stream) const {
  return CudaStatus(cudaEventRecord(event_.get(), stream),
                    "recording an event");
}

absl::Status Event::Wait() const {
  return CudaStatus(cudaEventSynchronize(event_.get()),
                    "waiting for the device");
}

absl::StatusOr<bool> Event::Done() const {
  const cudaError_t error = cudaEventQuery(event_.get());
  if (error == cudaErrorNotReady) {
    // CUDA keeps this result as the thread's last error, which the trainer
    // might read next: clear it.
    if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
    return false;
  }
  BALLAST_RETURN_IF_ERROR(CudaStatus(error, "asking for an event"));
  return true;
}

void Event::Destroy::operator()(cudaEvent_t event) const {
  LogFailure(cudaEventDestroy(event), "destroying an event");
}

absl::StatusOr<absl::Duration> TimeBetween(const Event& begin,
                                           const Event& end) {
  float milliseconds = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()),
                 "asking for the time between events"));
  return absl::Milliseconds(milliseconds);
}

absl::Status StreamWait(cudaStream_t stream, cudaEvent_t event) {
  return CudaStatus(cudaStreamWaitEvent(stream, event, 0),
                    "making a stream wait");
}

absl::StatusOr<CudaStream> CudaStream::Create() {
  return CreateWith(/*priority=*/0);
}

absl::StatusOr<CudaStream> CudaStream::CreateUrgent() {
  int lowest = 0;
  int highest = 0;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                 "asking for the priorities of streams"));
  return CreateWith(highest);
}

absl::StatusOr<CudaStream> CudaStream::CreateWith(int priority) {
  cudaStream_t stream = nullptr;
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
      "making a stream"));
  CudaStream made;
  made.stream_.reset(stream);
  return made;
}

absl::Status CudaStream::Synchronize() const {
  return CudaStatus(cudaStreamSynchronize(stream_.get()),
                    "waiting for a stream");
}

void CudaStream::Destroy::operator()(cudaStream_t stream) const {
  LogFailure(cudaStreamDestroy(stream), "destroying a stream");
}

StreamBuffer::~StreamBuffer() { Free(); }

absl::Status StreamBuffer::Reserve(uint64_t size, cudaStream_t stream) {
  if (size <= size_) return absl::OkStatus();
  Free();
  void* data = nullptr;
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaMallocAsync(&data, 2 * size, stream),
      absl::StrCat("allocation of ", 2 * size, " bytes on the device")));
  data_ = static_cast<uint8_t*>(data);
  size_ = 2 * size;
  stream_ = stream;
  return absl::OkStatus();
}

void StreamBuffer::Free() {
  if (data_ == nullptr) return;
  LogFailure(cudaFreeAsync(data_, stream_), "release of device memory");
  data_ = nullptr;
  size_ = 0;
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(uint64_t size) {
  PinnedBuffer buffer;
  if (size == 0) return buffer;
  void* data = nullptr;
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaHostAlloc(&data, size, cudaHostAllocPortable | cudaHostAllocMapped),
      absl::StrCat("pinning ", size, " bytes of host memory")));
  buffer.data_.reset(static_cast<uint8_t*>(data));
  buffer.size_ = size;
  return buffer;
}

absl::Status PinnedBuffer::Reserve(uint64_t size) {
  if (size <= size_) return absl::OkStatus();
  BALLAST_ASSIGN_OR_RETURN(PinnedBuffer grown, Create(2 * size));
  if (data_ != nullptr) outgrown_.push_back(std::move(data_));
  data_ = std::move(grown.data_);
  size_ = grown.size_;
  return absl::OkStatus();
}

void PinnedBuffer::Free::operator()(uint8_t* data) const {
  LogFailure(cudaFreeHost(data), "release of pinned memory");
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(uint64_t size) {
  DeviceBuffer buffer;
  if (size == 0) return buffer;
  void* data = nullptr;
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaMalloc(&data, size),
                 absl::StrCat("allocation of ", size, " bytes on the device")));
  buffer.data_.reset(static_cast<uint8_t*>(data));
  buffer.size_ = size;
  return buffer;
}

void DeviceBuffer::Free::operator()(uint8_t* data) const {
  const absl::Status status =
      CudaStatus(cudaFree(data), "release of device memory");
  // A destructor cannot return an error. The call that first got the device's
  // error has reported it.
  if (!status.ok()) LogError(status.message());
}

namespace {

// CUDA takes a non-const pointer; a flag marks this memory as read-only.
void* GetAddress(const MemoryRegion& region) {
  return const_cast<uint8_t*>(region.bytes().data());
}

}  // namespace

absl::Status CudaPinner::Pin(const MemoryRegion& region) {
  const CurrentDevice current(device_);
  BALLAST_RETURN_IF_ERROR(current.status());
  const unsigned flags = cudaHostRegisterPortable |
                         (region.read_only() ? cudaHostRegisterReadOnly : 0);
  const absl::Status status = CudaStatus(
      cudaHostRegister(GetAddress(region), region.bytes().size(), flags),
      absl::StrCat("pinning the ", region.bytes().size(),
                   " bytes that hold blocks"));
  if (!status.ok()) cudaGetLastError();  // the caller handles it: clear it
  return status;
}

absl::Status CudaPinner::Unpin(const MemoryRegion& region) {
  const CurrentDevice current(device_);
  BALLAST_RETURN_IF_ERROR(current.status());
  return CudaStatus(cudaHostUnregister(GetAddress(region)), "unpinning memory");
}

}  // namespace ballast
