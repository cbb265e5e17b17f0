#include "trainer_shim/cuda/device_batch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {
namespace {

absl::Status Copy(const uint8_t* device, uint64_t bytes, cudaStream_t stream,
                  std::vector<uint8_t>* host) {
  host->resize(bytes);
  if (bytes == 0) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(host->data(), device, bytes,
                                    cudaMemcpyDeviceToHost, stream),
                    "copy of a batch to the host");
}

}  // namespace

PackedBatch WithoutTensors(const DeviceBatch& batch) {
  PackedBatch host;
  static_cast<BatchInfo&>(host) = batch;
  host.tensors.clear();
  return host;
}

absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream) {
  PackedBatch host;
  static_cast<BatchInfo&>(host) = batch;
  BALLAST_RETURN_IF_ERROR(
      Copy(batch.memory.packed, batch.packed_bytes, stream, &host.packed));
  BALLAST_RETURN_IF_ERROR(
      Copy(batch.memory.lists, batch.list_bytes, stream, &host.lists));
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream), "waiting for a batch"));
  for (size_t i = 0; i < host.samples.size(); ++i) {
    host.samples[i].placeholder = batch.placeholders[i] != 0;
  }
  return host;
}

namespace {

constexpr uint64_t kPlaceholders = 4096;  // initial capacity, in samples

// Pinned memory of destroyed entries, for reuse. Never destroyed: entries may
// be released while the process ends.
struct Retired {
  Mutex mutex;
  std::vector<PinnedBuffer> buffers ABSL_GUARDED_BY(mutex);
};
Retired& RetiredPlaceholders() {
  static auto* const retired = new Retired;
  return *retired;
}

void Retire(PinnedBuffer buffer) {
  Retired& retired = RetiredPlaceholders();
  MutexLock lock(&retired.mutex);
  retired.buffers.push_back(std::move(buffer));
}

absl::StatusOr<PinnedBuffer> TakePlaceholders() {
  {
    Retired& retired = RetiredPlaceholders();
    MutexLock lock(&retired.mutex);
    if (!retired.buffers.empty()) {
      PinnedBuffer buffer = std::move(retired.buffers.back());
      retired.buffers.pop_back();
      return buffer;
    }
  }
  return PinnedBuffer::Create(kPlaceholders);
}

// Whether the driver has been unloaded, and all its memory with it.
bool ProcessEnds() {
  int device = 0;
  return cudaGetDevice(&device) == cudaErrorCudartUnloading;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceEntry>> DeviceEntry::Create(
    int device, std::shared_ptr<const CudaStream> stream) {
  std::unique_ptr<DeviceEntry> entry(
      new DeviceEntry(device, std::move(stream)));
  BALLAST_ASSIGN_OR_RETURN(entry->packed, Event::Create());
  BALLAST_ASSIGN_OR_RETURN(entry->placeholders, TakePlaceholders());
  std::memset(entry->placeholders.data(), 0, entry->placeholders.size());
  return entry;
}

DeviceEntry::~DeviceEntry() {
  const CurrentDevice current(device_);
  WaitUntilFree().IgnoreError();
  upload.Free();
  output.Free();
  if (placeholders.data() != nullptr) Retire(std::move(placeholders));
  packed = {};
  events_.clear();
  stream_ = nullptr;  // last: the buffers are freed in its order
}

absl::StatusOr<std::string> DeviceEntry::Digest(StreamHandle stream) const {
  const CurrentDevice current(device_);
  BALLAST_RETURN_IF_ERROR(current.status());
  BALLAST_RETURN_IF_ERROR(CheckNotCapturing(static_cast<cudaStream_t>(stream)));
  BALLAST_ASSIGN_OR_RETURN(
      const PackedBatch host,
      CopyToHost(batch, static_cast<cudaStream_t>(stream)));
  return ComputeDigest(host);
}

absl::Status DeviceEntry::RecordStream(StreamHandle stream) {
  if (stream == cudaStreamPerThread) {
    return absl::InvalidArgumentError(
        "the stream of a batch is cudaStreamPerThread, which is another one in "
        "the thread that releases it; wanted one that all threads share");
  }
  MutexLock lock(&mutex_);
  if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) {
    return absl::OkStatus();
  }
  if (events_.size() == streams_.size()) {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    BALLAST_ASSIGN_OR_RETURN(Event event, Event::Create());
    events_.push_back(std::move(event));
  }
  streams_.push_back(stream);
  return absl::OkStatus();
}

void DeviceEntry::OnRelease() {
  if (ProcessEnds()) return;
  const CurrentDevice current(device_);
  MutexLock lock(&mutex_);
  const absl::Status recorded = RecordReaders();
  if (recorded.ok() || absl::IsFailedPrecondition(recorded)) return;
  LogError(recorded.message());  // returned when the memory is to be reused
}

bool DeviceEntry::IsBusy() {
  {
    MutexLock lock(&mutex_);
    if (streams_.empty()) return false;
  }
  const CurrentDevice current(device_);
  MutexLock lock(&mutex_);
  return absl::IsFailedPrecondition(RecordReaders());
}

absl::Status DeviceEntry::RecordReaders() {
  while (!streams_.empty()) {
    const auto stream = static_cast<cudaStream_t>(streams_.back());
    BALLAST_RETURN_IF_ERROR(CheckNotCapturing(stream));
    BALLAST_RETURN_IF_ERROR(events_[pending_].Record(stream));
    ++pending_;
    streams_.pop_back();
  }
  return absl::OkStatus();
}

absl::Status DeviceEntry::WaitUntilFree() {
  MutexLock lock(&mutex_);
  BALLAST_RETURN_IF_ERROR(RecordReaders());
  for (size_t i = 0; i < pending_; ++i) {
    BALLAST_RETURN_IF_ERROR(StreamWait(stream_->get(), events_[i].get()));
  }
  pending_ = 0;
  return absl::OkStatus();
}

absl::Status DeviceEntry::ReservePlaceholders(uint64_t samples) {
  if (samples <= placeholders.size()) return absl::OkStatus();
  BALLAST_RETURN_IF_ERROR(placeholders.Reserve(samples));
  std::memset(placeholders.data(), 0, placeholders.size());
  return absl::OkStatus();
}

void DeviceEntry::List(std::vector<TensorView>* tensors) const {
  ListTensors(batch, batch.memory, tensors);
}

}  // namespace ballast
