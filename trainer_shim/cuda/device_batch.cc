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
  static_cast<BatchInfo&>(host) = batch;
  return host;
}

TensorAddresses AddressesOf(const DeviceBatch& batch) {
  TensorAddresses at;
  at.device = batch.device;
  if (batch.cu_seqlens != nullptr) {
    at.tokens = batch.text.padded_tokens() / batch.context.size;
    at.bounds = batch.text.cu_seqlens.size();
  }
  if (batch.image_grid_thw != nullptr) {
    at.images = batch.vision.num_images();
    at.vision_bounds = batch.vision.cu_seqlens.size();
  }
  at.input_ids = batch.input_ids;
  at.labels = batch.labels;
  at.loss_mask = batch.loss_mask;
  at.position_ids = batch.position_ids;
  at.attention_mask = batch.attention_mask;
  at.cu_seqlens = batch.cu_seqlens;
  at.cu_seqlens_host = batch.text.cu_seqlens.data();
  at.cu_seqlens_padded = batch.cu_seqlens_padded;
  at.cu_seqlens_padded_host = batch.text.cu_seqlens_padded.data();
  at.pixel_values = batch.pixel_values;
  at.image_grid_thw = batch.image_grid_thw;
  at.image_grid_thw_host = batch.vision.image_grid_thw.data();
  at.vision_cu_seqlens = batch.vision_cu_seqlens;
  at.vision_cu_seqlens_host = batch.vision.cu_seqlens.data();
  at.pixel_values_videos = batch.pixel_values_videos;
  at.video_grid_thw = batch.video_grid_thw;
  at.second_per_grid_ts = batch.second_per_grid_ts;
  at.video_cu_seqlens = batch.video_cu_seqlens;
  at.imgs_sizes = batch.imgs_sizes;
  at.crops_per_image = batch.crops_per_image;
  at.image_sizes = batch.image_sizes;
  at.spatial_shapes = batch.spatial_shapes;
  at.pixel_attention_mask = batch.pixel_attention_mask;
  at.embedding_order = batch.embedding_order;
  return at;
}

namespace {

// Copies the videos of `batch`, whose job's model takes them: also the lists of
// the device, not the host's copies, which they must equal.
absl::Status CopyVideos(const DeviceBatch& batch, cudaStream_t stream,
                        PackedBatch* host) {
  const VideoLayout& videos = batch.videos;
  const uint64_t values = videos.rows() * batch.crops.shape.row();
  BALLAST_RETURN_IF_ERROR(batch.pixel_type == PixelType::kBfloat16
                              ? Copy(batch.pixel_values_videos, values, stream,
                                     &host->pixel_values_videos_bf16)
                              : Copy(batch.pixel_values_videos, values, stream,
                                     &host->pixel_values_videos));
  VisionLayout& to = host->videos.vision;
  BALLAST_RETURN_IF_ERROR(Copy(batch.video_grid_thw,
                               videos.vision.image_grid_thw.size(), stream,
                               &to.image_grid_thw));
  BALLAST_RETURN_IF_ERROR(Copy(batch.second_per_grid_ts, videos.num_videos(),
                               stream, &host->videos.second_per_grid_ts));
  return Copy(batch.video_cu_seqlens, videos.vision.cu_seqlens.size(), stream,
              &to.cu_seqlens);
}

}  // namespace

absl::StatusOr<PackedBatch> CopyToHost(const DeviceBatch& batch,
                                       cudaStream_t stream) {
  PackedBatch host = WithoutTensors(batch);
  if (batch.cu_seqlens != nullptr) {
    const uint64_t tokens = batch.text.padded_tokens() / batch.context.size;
    const uint64_t bounds = batch.samples.size() + 1;
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.input_ids, tokens, stream, &host.input_ids));
    BALLAST_RETURN_IF_ERROR(Copy(batch.labels, tokens, stream, &host.labels));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.loss_mask, tokens, stream, &host.loss_mask));
    BALLAST_RETURN_IF_ERROR(Copy(batch.position_ids,
                                 tokens * batch.position_axes, stream,
                                 &host.position_ids));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.attention_mask, tokens, stream, &host.attention_mask));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.cu_seqlens, bounds, stream, &host.cu_seqlens));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.cu_seqlens_padded, bounds, stream, &host.cu_seqlens_padded));
  }
  if (batch.image_grid_thw != nullptr) {
    const CropLayout& crops = batch.crops;
    const uint64_t values = crops.rows() * crops.shape.row();
    const uint64_t images = batch.vision.num_images();
    BALLAST_RETURN_IF_ERROR(
        batch.pixel_type == PixelType::kBfloat16
            ? Copy(batch.pixel_values, values, stream, &host.pixel_values_bf16)
            : Copy(batch.pixel_values, values, stream, &host.pixel_values));
    BALLAST_RETURN_IF_ERROR(
        Copy(batch.image_grid_thw, 3 * images, stream, &host.image_grid_thw));
    BALLAST_RETURN_IF_ERROR(Copy(batch.vision_cu_seqlens, images + 1, stream,
                                 &host.vision_cu_seqlens));
    // Those of the device, not the host's copies, which they must equal.
    BALLAST_RETURN_IF_ERROR(Copy(batch.imgs_sizes, crops.imgs_sizes.size(),
                                 stream, &host.crops.imgs_sizes));
    BALLAST_RETURN_IF_ERROR(Copy(batch.crops_per_image,
                                 crops.crops_per_image.size(), stream,
                                 &host.crops.crops_per_image));
    BALLAST_RETURN_IF_ERROR(Copy(batch.image_sizes, crops.image_sizes.size(),
                                 stream, &host.crops.image_sizes));
    BALLAST_RETURN_IF_ERROR(Copy(batch.spatial_shapes,
                                 crops.spatial_shapes.size(), stream,
                                 &host.crops.spatial_shapes));
    BALLAST_RETURN_IF_ERROR(Copy(batch.pixel_attention_mask,
                                 crops.pixel_attention_mask.size(), stream,
                                 &host.crops.pixel_attention_mask));
  }
  if (batch.video_grid_thw != nullptr) {
    BALLAST_RETURN_IF_ERROR(CopyVideos(batch, stream, &host));
  }
  BALLAST_RETURN_IF_ERROR(Copy(batch.embedding_order,
                               batch.embeddings.order.size(), stream,
                               &host.embeddings.order));
  BALLAST_RETURN_IF_ERROR(
      CudaStatus(cudaStreamSynchronize(stream), "waiting for a batch"));
  for (size_t i = 0; i < host.samples.size(); ++i) {
    host.samples[i].placeholder = batch.placeholders[i] != 0;
  }
  return host;
}

}  // namespace ballast
