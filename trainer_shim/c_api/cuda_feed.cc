#include "trainer_shim/c_api/cuda_feed.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <utility>

#include "client/loader_client.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/device_communicator.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/cuda/nccl_communicator.h"
#include "trainer_shim/role_source.h"

namespace ballast {
namespace {

struct DeviceEnd : public GroupEnd {
  explicit DeviceEnd(std::unique_ptr<DeviceCommunicator> end)
      : communicator(std::move(end)) {}
  ballast_backend backend() const override { return BALLAST_BACKEND_CUDA; }

  std::unique_ptr<DeviceCommunicator> communicator;
};

std::unique_ptr<DeviceCommunicator> CommunicatorOf(
    std::unique_ptr<GroupEnd> end) {
  if (end == nullptr) return nullptr;
  return std::move(static_cast<DeviceEnd*>(end.get())->communicator);
}

// Makes a device the current one, and the one before again at its end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    status_ = CudaStatus(cudaGetDevice(&before_), "asking for the device");
    if (!status_.ok() || device == before_) return;
    status_ = CudaStatus(cudaSetDevice(device), "choosing the device");
    changed_ = status_.ok();
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  absl::Status status_;
};

absl::StatusOr<std::unique_ptr<GroupEnd>> EndOf(
    absl::StatusOr<std::unique_ptr<DeviceCommunicator>> communicator) {
  BALLAST_RETURN_IF_ERROR(communicator.status());
  return std::make_unique<DeviceEnd>(*std::move(communicator));
}

NcclOptions OptionsOf(const NcclEndOptions& options) {
  NcclOptions nccl;
  nccl.max_ctas = options.max_ctas;
  return nccl;
}

TensorView Device(const DeviceBatch& batch, const char* name,
                  ballast_dtype dtype, const void* data,
                  std::vector<int64_t> shape) {
  TensorView view;
  view.name = name;
  view.dtype = dtype;
  view.data = data;
  view.device_type = BALLAST_DEVICE_CUDA;
  view.device_id = batch.device;
  view.shape = std::move(shape);
  return view;
}

template <typename T>
TensorView Host(const char* name, ballast_dtype dtype,
                const std::vector<T>& values, std::vector<int64_t> shape) {
  TensorView view;
  view.name = name;
  view.dtype = dtype;
  view.data = values.data();
  view.shape = std::move(shape);
  return view;
}

// In the order of ViewOf(PackedBatch).
void AddText(const DeviceBatch& batch, std::vector<TensorView>* tensors) {
  // Every stage has bounds, or nothing.
  if (!batch.fields.positions) return;
  const int64_t tokens = batch.text.padded_tokens() / batch.context.size;
  const int64_t bounds = batch.text.cu_seqlens.size();
  if (batch.fields.input_ids) {
    tensors->push_back(Device(batch, "input_ids", BALLAST_INT64,
                              batch.input_ids, {1, tokens}));
  }
  if (batch.fields.labels) {
    tensors->push_back(
        Device(batch, "labels", BALLAST_INT64, batch.labels, {1, tokens}));
    tensors->push_back(Device(batch, "loss_mask", BALLAST_FLOAT32,
                              batch.loss_mask, {1, tokens}));
  }
  std::vector<int64_t> positions = {1, tokens};
  if (batch.position_axes > 1) {
    positions.insert(positions.begin(), batch.position_axes);
  }
  tensors->push_back(Device(batch, "position_ids", BALLAST_INT64,
                            batch.position_ids, std::move(positions)));
  tensors->push_back(
      Device(batch, "cu_seqlens", BALLAST_INT32, batch.cu_seqlens, {bounds}));
  tensors->push_back(
      Host("cu_seqlens_host", BALLAST_INT32, batch.text.cu_seqlens, {bounds}));
  tensors->push_back(Device(batch, "cu_seqlens_padded", BALLAST_INT32,
                            batch.cu_seqlens_padded, {bounds}));
  tensors->push_back(Host("cu_seqlens_padded_host", BALLAST_INT32,
                          batch.text.cu_seqlens_padded, {bounds}));
}

void AddImages(const DeviceBatch& batch, std::vector<TensorView>* tensors) {
  if (!batch.fields.pixels) return;
  const int64_t images = batch.vision.num_images();
  const int64_t bounds = batch.vision.cu_seqlens.size();
  *tensors = {Device(batch, "pixel_values",
                     batch.pixel_type == PixelType::kBfloat16 ? BALLAST_BFLOAT16
                                                              : BALLAST_FLOAT32,
                     batch.pixel_values,
                     {batch.vision.patches(),
                      static_cast<int64_t>(batch.patch_values)}),
              Device(batch, "image_grid_thw", BALLAST_INT64,
                     batch.image_grid_thw, {images, 3}),
              Host("image_grid_thw_host", BALLAST_INT64,
                   batch.vision.image_grid_thw, {images, 3}),
              Device(batch, "vision_cu_seqlens", BALLAST_INT32,
                     batch.vision_cu_seqlens, {bounds}),
              Host("vision_cu_seqlens_host", BALLAST_INT32,
                   batch.vision.cu_seqlens, {bounds})};
}

BatchView ViewOf(const DeviceBatch& batch) {
  BatchView view;
  view.step = batch.step;
  view.micro_batch = batch.micro_batch;
  view.num_micro_batches = batch.schedule->micro_batches_size();
  view.role = batch.role;
  view.samples = &batch.samples;
  view.placeholders = batch.placeholders;
  view.dummy_image = batch.dummy_image;
  view.totals = batch.totals;
  view.micro_batch_totals = batch.micro_batch_totals;
  view.step_totals = batch.step_totals;
  view.bytes_read = batch.bytes_read;
  view.bytes_moved = batch.bytes_moved;
  if (batch.role.module() == v1::MODULE_VISION) {
    if (batch.fields.pixels) view.vision_max_seqlen = batch.vision.max_seqlen;
    AddImages(batch, &view.tensors);
  } else {
    if (batch.fields.positions) view.max_seqlen = batch.text.max_seqlen;
    AddText(batch, &view.tensors);
  }
  return view;
}

class CudaFeed : public RankFeed {
 public:
  CudaFeed(std::unique_ptr<CudaTrainerShim> shim, int device)
      : device_(device), shim_(std::move(shim)) {}
  ~CudaFeed() override {
    const CurrentDevice current(device_);
    shim_ = nullptr;
  }

  bool has_streams() const override { return true; }
  absl::StatusOr<const BatchView*> Next(void* stream) override {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    return Show(shim_->Next(static_cast<cudaStream_t>(stream)));
  }
  absl::Status SendToTensorPeers(void* stream) override {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    return shim_->SendToTensorPeers(static_cast<cudaStream_t>(stream));
  }
  absl::StatusOr<const BatchView*> ReceiveFromTensorPeer(
      void* stream) override {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    return Show(
        shim_->ReceiveFromTensorPeer(static_cast<cudaStream_t>(stream)));
  }
  void Cancel() override { shim_->Cancel(); }
  absl::Status ReportTiming(uint64_t step, uint32_t micro_batch,
                            double milliseconds) override {
    return shim_->ReportTiming(step, micro_batch, milliseconds);
  }
  absl::StatusOr<std::string> Digest(void* stream) override {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    BALLAST_ASSIGN_OR_RETURN(
        const PackedBatch host,
        CopyToHost(*batch_, static_cast<cudaStream_t>(stream)));
    return DigestOf(host);
  }
  const v1::Job& job() const override { return shim_->job(); }
  const v1::Fingerprint& fingerprint() const override {
    return shim_->fingerprint();
  }
  const v1::StepSchedule* schedule() const override {
    return batch_ == nullptr ? nullptr : batch_->schedule.get();
  }

 private:
  absl::StatusOr<const BatchView*> Show(
      const absl::StatusOr<const DeviceBatch*>& batch) {
    batch_ = batch.ok() ? *batch : nullptr;
    BALLAST_RETURN_IF_ERROR(batch.status());
    view_ = ViewOf(*batch_);
    return &view_;
  }

  const int device_;
  std::unique_ptr<CudaTrainerShim> shim_;
  const DeviceBatch* batch_ = nullptr;
  BatchView view_;
};

}  // namespace

bool HasCuda() { return true; }

absl::StatusOr<std::string> NcclId() { return MakeNcclId(); }

absl::StatusOr<std::unique_ptr<GroupEnd>> NcclEndOfId(
    const std::string& id, uint32_t rank, uint32_t size,
    const NcclEndOptions& options) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return EndOf(CreateNcclCommunicator(id, rank, size, OptionsOf(options)));
}

absl::StatusOr<std::unique_ptr<GroupEnd>> MeetNcclEnd(
    const ServerOptions& servers, const std::string& group, uint32_t rank,
    uint32_t size, absl::Duration timeout, const NcclEndOptions& options) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<std::unique_ptr<LoaderClient>> clients,
      ClientsOf(servers.servers, servers.security, servers.streams));
  return EndOf(MeetNcclCommunicator(clients[0].get(), group, rank, size,
                                    timeout, OptionsOf(options), servers.run));
}

absl::StatusOr<std::unique_ptr<GroupEnd>> BorrowNcclEnd(
    void* trainers, const NcclEndOptions& options) {
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  return EndOf(BorrowNcclCommunicator(static_cast<ncclComm_t>(trainers),
                                      OptionsOf(options)));
}

absl::StatusOr<std::vector<std::unique_ptr<GroupEnd>>> CudaGroup(
    uint32_t size) {
  std::vector<std::unique_ptr<GroupEnd>> ends;
  for (std::unique_ptr<DeviceCommunicator>& end : InProcessDeviceGroup(size)) {
    ends.push_back(std::make_unique<DeviceEnd>(std::move(end)));
  }
  return ends;
}

absl::StatusOr<std::unique_ptr<RankFeed>> MakeCudaFeed(
    const FeedOptions& options, GroupEnds ends) {
  CudaTrainerShim::Options shim;
  shim.servers = options.servers.servers;
  shim.security = options.servers.security;
  shim.streams = options.servers.streams;
  shim.source.failover = options.servers.failover;
  shim.source.role = options.role;
  shim.source.place = options.place;
  shim.source.start_step = options.start_step;
  shim.source.steps = options.steps;
  shim.source.checkpoint = options.checkpoint;
  shim.source.fingerprint = options.fingerprint;
  shim.source.max_bytes = options.max_bytes;
  shim.communicator = CommunicatorOf(std::move(ends.data));
  shim.tensor_communicator = CommunicatorOf(std::move(ends.tensor));
  shim.device = options.device;
  shim.pixel_type = options.pixel_type;
  shim.normalisation = options.normalisation;
  shim.overlap = options.overlap;
  shim.timeout = options.timeout;
  const CurrentDevice current(options.device);
  BALLAST_RETURN_IF_ERROR(current.status());
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<CudaTrainerShim> made,
                           CudaTrainerShim::Create(std::move(shim)));
  return std::make_unique<CudaFeed>(std::move(made), options.device);
}

}  // namespace ballast
