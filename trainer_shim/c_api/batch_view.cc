#include "trainer_shim/c_api/batch_view.h"

#include <utility>

#include "absl/time/time.h"
#include "trainer_shim/host/patchify.h"

namespace ballast {
namespace {

TensorView View(const char* name, ballast_dtype dtype, const void* data,
                std::vector<int64_t> shape) {
  TensorView view;
  view.name = name;
  view.dtype = dtype;
  view.data = data;
  view.shape = std::move(shape);
  return view;
}

void AddText(const PackedBatch& batch, std::vector<TensorView>* tensors) {
  // Every stage has bounds, or nothing.
  if (!batch.fields.positions) return;
  const int64_t tokens = batch.cu_seqlens_padded.back() / batch.context.size;
  if (batch.fields.input_ids) {
    tensors->push_back(
        View("input_ids", BALLAST_INT64, batch.input_ids.data(), {1, tokens}));
  }
  if (batch.fields.labels) {
    tensors->push_back(
        View("labels", BALLAST_INT64, batch.labels.data(), {1, tokens}));
    tensors->push_back(View("loss_mask", BALLAST_FLOAT32,
                            batch.loss_mask.data(), {1, tokens}));
  }
  std::vector<int64_t> positions = {1, tokens};
  if (batch.position_axes > 1) {
    positions.insert(positions.begin(), batch.position_axes);
  }
  tensors->push_back(View("position_ids", BALLAST_INT64,
                          batch.position_ids.data(), std::move(positions)));
  const int64_t bounds = batch.cu_seqlens.size();
  for (const char* name : {"cu_seqlens", "cu_seqlens_host"}) {
    tensors->push_back(
        View(name, BALLAST_INT32, batch.cu_seqlens.data(), {bounds}));
  }
  for (const char* name : {"cu_seqlens_padded", "cu_seqlens_padded_host"}) {
    tensors->push_back(
        View(name, BALLAST_INT32, batch.cu_seqlens_padded.data(), {bounds}));
  }
}

void AddImages(const PackedBatch& batch, uint64_t patch_values,
               std::vector<TensorView>* tensors) {
  if (!batch.fields.pixels) return;
  const bool bfloat16 = batch.pixel_type == PixelType::kBfloat16;
  const uint64_t values =
      bfloat16 ? batch.pixel_values_bf16.size() : batch.pixel_values.size();
  const void* pixels =
      bfloat16 ? static_cast<const void*>(batch.pixel_values_bf16.data())
               : batch.pixel_values.data();
  const int64_t patches = values / patch_values;
  const int64_t images = batch.image_grid_thw.size() / 3;
  const int64_t bounds = batch.vision_cu_seqlens.size();
  tensors->push_back(View("pixel_values",
                          bfloat16 ? BALLAST_BFLOAT16 : BALLAST_FLOAT32, pixels,
                          {patches, static_cast<int64_t>(patch_values)}));
  for (const char* name : {"image_grid_thw", "image_grid_thw_host"}) {
    tensors->push_back(
        View(name, BALLAST_INT64, batch.image_grid_thw.data(), {images, 3}));
  }
  for (const char* name : {"vision_cu_seqlens", "vision_cu_seqlens_host"}) {
    tensors->push_back(
        View(name, BALLAST_INT32, batch.vision_cu_seqlens.data(), {bounds}));
  }
}

}  // namespace

BatchView ViewOf(const PackedBatch& batch, uint64_t patch_values,
                 uint32_t num_micro_batches) {
  BatchView view;
  view.step = batch.step;
  view.micro_batch = batch.micro_batch;
  view.num_micro_batches = num_micro_batches;
  view.role = batch.role;
  view.samples = &batch.samples;
  view.max_seqlen = batch.max_seqlen;
  view.vision_max_seqlen = batch.vision_max_seqlen;
  view.dummy_image = batch.dummy_image;
  view.totals = batch.totals;
  view.micro_batch_totals = batch.micro_batch_totals;
  view.step_totals = batch.step_totals;
  view.bytes_read = batch.bytes_read;
  view.bytes_moved = batch.bytes_moved;
  view.pack_ms = absl::ToDoubleMilliseconds(batch.pack_time);
  if (batch.role.module() == v1::MODULE_VISION) {
    AddImages(batch, patch_values, &view.tensors);
  } else {
    AddText(batch, &view.tensors);
  }
  return view;
}

uint64_t PatchValues(const v1::Job& job) {
  PatchShape shape;
  shape.patch = job.model().patch();
  shape.merge = job.model().merge();
  shape.temporal_patch = job.model().temporal_patch();
  return shape.row();
}

}  // namespace ballast
