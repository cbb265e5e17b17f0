#ifndef BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
#define BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/staging_plan.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {

// A rank's packed batch of one micro-batch in GPU memory; PackedBatch is its
// counterpart on the host. BatchInfo::tensors lists its tensors, which are
// dense, row-major, and begin at multiples of 256 bytes.
// PackedSample::placeholder is not set: see `placeholders`.
struct DeviceBatch : BatchInfo {
  // The device address of a tensor; null if the batch has none of this name.
  template <typename T>
  const T* Get(absl::string_view name) const {
    const BatchTensor* tensor = FindTensor(*this, name);
    if (tensor == nullptr) return nullptr;
    const bool is_packed = tensor->row->memory == Memory::kPacked;
    return reinterpret_cast<const T*>(
        (is_packed ? memory.packed : memory.lists) + tensor->offset);
  }

  TensorMemory memory;
  // Host memory, [n]: 1 if the sample could not be read and a placeholder of
  // its size replaces it. Valid once the device has packed the batch.
  const uint8_t* placeholders = nullptr;
};

// The batch without its tensors.
PackedBatch WithoutTensors(const DeviceBatch& batch);

// Copies the batch to host memory, for tests and tools. Waits for `stream`,
// which must wait for the batch. Errors: as CudaStatus.
absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream);

// A batch in device memory, with the buffers that hold its tensors. They grow
// to twice the largest batch that they have held, and are kept.
//
// At the last release an event is recorded on every stream that the batch was
// given to. Before the memory is reused, the shim's stream, not the host, waits
// for these events. On a stream that captures a CUDA graph the event is
// recorded after the capture, for the work before it: the entry is busy until
// then. An entry that outlives its shim frees its device memory in
// the same order. CUDA frees pinned memory only by waiting for the device, so
// the entry's pinned memory is then kept for later entries of the process.
class DeviceEntry : public BatchEntry {
 public:
  // Creates an empty entry on `device`, which must be the current one. `stream`
  // is the shim's. Errors: as CudaStatus.
  static absl::StatusOr<std::unique_ptr<DeviceEntry>> Create(
      int device, std::shared_ptr<const CudaStream> stream);
  ~DeviceEntry() override;

  const BatchInfo& info() const override { return batch; }
  bool placeholder(size_t index) const override {
    return batch.placeholders[index] != 0;
  }
  absl::StatusOr<std::string> Digest(StreamHandle stream) const override;
  absl::Status RecordStream(StreamHandle stream) override;

  // Makes the shim's stream wait for all readers of the entry's previous batch.
  // Call it before the memory is used for another batch. Errors, after which it
  // may be called again: as RecordReaders and CudaStatus.
  absl::Status WaitUntilFree();

  // Makes space for `samples` placeholders; new space is zeroed. Errors: as
  // CudaStatus.
  absl::Status ReservePlaceholders(uint64_t samples);

 private:
  std::shared_ptr<const CudaStream> stream_;  // the shim's

 public:
  DeviceBatch batch;
  OutputLayout layout;    // of `output`
  ExchangeHeader header;  // of the batch; its copy is in `upload`
  uint64_t header_in_upload = 0;
  StreamBuffer upload;
  StreamBuffer output;
  PinnedBuffer placeholders;
  // Done once the device has packed the batch, or has sent it to or received it
  // from tensor peers; recorded by the code that enqueues that work.
  Event packed;

 private:
  DeviceEntry(int device, std::shared_ptr<const CudaStream> stream)
      : stream_(std::move(stream)), device_(device) {}
  void List(std::vector<TensorView>* tensors) const override;
  void OnRelease() override;
  bool IsBusy() override;
  // Records an event on each of streams_ and removes it from there, except for
  // streams that are capturing. The device must be current. Errors: as
  // CudaStatus; FAILED_PRECONDITION (a stream is capturing).
  absl::Status RecordReaders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int device_;
  Mutex mutex_;
  // Streams that the batch was given to (RecordStream) since it was handed out;
  // after its release, those on which no event has been recorded yet.
  std::vector<StreamHandle> streams_ ABSL_GUARDED_BY(mutex_);
  // The recorded ones, one for each of `streams_`, and spare ones.
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  // Number of events_ that must be done before the memory is reused.
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_DEVICE_BATCH_H_
