#include "trainer_shim/cuda/cuda_handles.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

// A destructor cannot return an error. The call that met the device's error
// first has reported it.
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

}  // namespace ballast
