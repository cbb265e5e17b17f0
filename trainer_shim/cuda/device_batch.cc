#include "trainer_shim/cuda/device_batch.h"

#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "trainer_shim/cuda/cuda_status.h"

namespace ballast {
namespace {

template <typename T>
absl::Status Copy(const void* device, uint64_t count, cudaStream_t stream,
                  std::vector<T>* host) {
  host->resize(device == nullptr ? 0 : count);
  if (host->empty()) return absl::OkStatus();
  return CudaStatus(cudaMemcpyAsync(host->data(), device, count * sizeof(T),
                                    cudaMemcpyDeviceToHost, stream),
                    "copy of a batch to the host");
}

}  // namespace

PackedBatch WithoutTensors(const DeviceBatch& batch) {
  PackedBatch host;
  host.step = batch.step;
  host.micro_batch = batch.micro_batch;
  host.role = batch.role;
  host.place = batch.place;
  host.fields = batch.fields;
  host.context = batch.context;
  host.samples = batch.samples;
  host.dummy_image = batch.dummy_image;
  host.totals = batch.totals;
  host.micro_batch_totals = batch.micro_batch_totals;
  host.step_totals = batch.step_totals;
  host.bytes_read = batch.bytes_read;
  host.bytes_moved = batch.bytes_moved;
  host.pixel_type = batch.pixel_type;
  return host;
}

absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream) {
  PackedBatch host = WithoutTensors(batch);
  if (batch.cu_seqlens != nullptr) {
    const uint64_t tokens = batch.text.padded_tokens() / batch.context.size;
    const uint64_t bounds = batch.samples.size() + 1;
    host.position_axes = batch.position_axes;
    host.max_seqlen = batch.text.max_seqlen;
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.input_ids, tokens, stream, &host.input_ids));
    BALLAST_RETURN_IF_ERROR(Copy(batch.labels, tokens, stream, &host.labels));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.loss_mask, tokens, stream, &host.loss_mask));
    BALLAST_RETURN_IF_ERROR(Copy(batch.position_ids,
                                 tokens * batch.position_axes, stream,
                                 &host.position_ids));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.cu_seqlens, bounds, stream, &host.cu_seqlens));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.cu_seqlens_padded, bounds, stream, &host.cu_seqlens_padded));
  }
  if (batch.image_grid_thw != nullptr) {
    const uint64_t values = batch.vision.patches() * batch.patch_values;
    const uint64_t images = batch.vision.num_images();
    host.vision_max_seqlen = batch.vision.max_seqlen;
    BALLAST_RETURN_IF_ERROR(
        batch.pixel_type == PixelType::kBfloat16
            ? Copy(batch.pixel_values, values, stream, &host.pixel_values_bf16)
            : Copy(batch.pixel_values, values, stream, &host.pixel_values));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.image_grid_thw, 3 * images, stream, &host.image_grid_thw));
    BALLAST_RETURN_IF_ERROR(Copy(batch.vision_cu_seqlens, images + 1, stream,
                                 &host.vision_cu_seqlens));
  }
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream), "waiting for a batch"));
  for (size_t i = 0; i < host.samples.size(); ++i) {
    host.samples[i].placeholder = batch.placeholders[i] != 0;
  }
  return host;
}

}  // namespace ballast
