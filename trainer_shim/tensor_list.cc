#include "trainer_shim/tensor_list.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace ballast {
namespace {

// Adds tensors on one device, or in host memory, to a list.
class Adder {
 public:
  explicit Adder(std::vector<TensorView>* tensors) : tensors_(tensors) {}

  void Add(int device, const char* name, ElementType type, const void* data,
           std::initializer_list<int64_t> shape) {
    TensorView& view = tensors_->emplace_back();
    view.name = name;
    view.type = type;
    view.data = data;
    view.device = device;
    view.rank = shape.size();
    std::copy(shape.begin(), shape.end(), view.shape.begin());
  }

 private:
  std::vector<TensorView>* const tensors_;
};

void AddText(const BatchInfo& info, const TensorAddresses& from, Adder* out) {
  // Every language stage that receives anything receives the bounds or the
  // mask.
  if (!info.fields.positions) return;
  const int64_t rows = info.padded ? info.samples.size() : 1;
  const int64_t length = from.tokens / rows;
  const auto add = [&](const char* name, ElementType type, const void* data) {
    out->Add(from.device, name, type, data, {rows, length});
  };
  if (info.fields.input_ids) {
    add("input_ids", ElementType::kInt64, from.input_ids);
  }
  if (info.fields.labels) {
    add("labels", ElementType::kInt64, from.labels);
    add("loss_mask", ElementType::kFloat32, from.loss_mask);
  }
  if (info.position_axes > 1) {
    out->Add(from.device, "position_ids", ElementType::kInt64,
             from.position_ids, {info.position_axes, rows, length});
  } else {
    add("position_ids", ElementType::kInt64, from.position_ids);
  }
  if (info.padded) {
    add("attention_mask", ElementType::kBool, from.attention_mask);
    return;
  }
  const auto bounds = [&](int device, const char* name, const void* data) {
    out->Add(device, name, ElementType::kInt32, data, {from.bounds});
  };
  bounds(from.device, "cu_seqlens", from.cu_seqlens);
  bounds(kHostMemory, "cu_seqlens_host", from.cu_seqlens_host);
  bounds(from.device, "cu_seqlens_padded", from.cu_seqlens_padded);
  bounds(kHostMemory, "cu_seqlens_padded_host", from.cu_seqlens_padded_host);
}

ElementType PixelTypeOf(const BatchInfo& info) {
  return info.pixel_type == PixelType::kBfloat16 ? ElementType::kBfloat16
                                                 : ElementType::kFloat32;
}

void AddPixels(const BatchInfo& info, const TensorAddresses& from, Adder* out) {
  const ElementType type = PixelTypeOf(info);
  const CropLayout& crops = info.crops;
  const int64_t values = crops.shape.row();
  const auto add = [&](std::initializer_list<int64_t> shape) {
    out->Add(from.device, "pixel_values", type, from.pixel_values, shape);
  };
  if (crops.tiles) {
    add({crops.rows(), 3, crops.shape.tile_h, crops.shape.tile_w});
  } else if (crops.shape.padded_rows != 0) {
    add({crops.num_crops(), crops.shape.padded_rows, values});
  } else {
    add({crops.rows(), values});
  }
}

// Each list of crops on the device and in host memory; those that the job's
// form lacks are left out.
void AddCrops(const BatchInfo& info, const TensorAddresses& from, Adder* out) {
  const CropLayout& crops = info.crops;
  if (!crops.lists_crops) return;
  const auto pairs = [&](const char* name, const char* host_name,
                         const void* data, const std::vector<int64_t>& host) {
    const int64_t count = host.size() / 2;
    out->Add(from.device, name, ElementType::kInt64, data, {count, 2});
    out->Add(kHostMemory, host_name, ElementType::kInt64, host.data(),
             {count, 2});
  };
  if (crops.lists_sizes) {
    pairs("imgs_sizes", "imgs_sizes_host", from.imgs_sizes, crops.imgs_sizes);
  }
  const int64_t images = crops.crops_per_image.size();
  out->Add(from.device, "crops_per_image", ElementType::kInt64,
           from.crops_per_image, {images});
  out->Add(kHostMemory, "crops_per_image_host", ElementType::kInt64,
           crops.crops_per_image.data(), {images});
  if (crops.lists_images) {
    pairs("image_sizes", "image_sizes_host", from.image_sizes,
          crops.image_sizes);
  }
  if (crops.shape.padded_rows != 0) {
    pairs("spatial_shapes", "spatial_shapes_host", from.spatial_shapes,
          crops.spatial_shapes);
    out->Add(from.device, "pixel_attention_mask", ElementType::kBool,
             from.pixel_attention_mask,
             {crops.num_crops(), crops.shape.padded_rows});
  }
}

// The videos, on the device and, but for their pixels, in host memory; only in
// jobs whose model takes videos.
void AddVideos(const BatchInfo& info, const TensorAddresses& from, Adder* out) {
  const VideoLayout& videos = info.videos;
  if (!videos.listed) return;
  const int64_t count = videos.num_videos();
  const int64_t bounds = videos.vision.cu_seqlens.size();
  const auto both = [&](const char* name, const char* host_name,
                        ElementType type, const void* data, const void* host,
                        std::initializer_list<int64_t> shape) {
    out->Add(from.device, name, type, data, shape);
    out->Add(kHostMemory, host_name, type, host, shape);
  };
  const PatchShape& shape = info.crops.shape;
  const auto pixels = [&](std::initializer_list<int64_t> sides) {
    out->Add(from.device, "pixel_values_videos", PixelTypeOf(info),
             from.pixel_values_videos, sides);
  };
  if (info.crops.tiles) {
    pixels({videos.rows(), 3, shape.tile_h, shape.tile_w});
  } else {
    pixels({videos.rows(), static_cast<int64_t>(shape.row())});
  }
  both("video_grid_thw", "video_grid_thw_host", ElementType::kInt64,
       from.video_grid_thw, videos.vision.image_grid_thw.data(), {count, 3});
  both("second_per_grid_ts", "second_per_grid_ts_host", ElementType::kFloat32,
       from.second_per_grid_ts, videos.second_per_grid_ts.data(), {count});
  both("video_cu_seqlens", "video_cu_seqlens_host", ElementType::kInt32,
       from.video_cu_seqlens, videos.vision.cu_seqlens.data(), {bounds});
}

void AddImages(const BatchInfo& info, const TensorAddresses& from, Adder* out) {
  if (!info.fields.pixels) return;
  AddPixels(info, from, out);
  const auto grids = [&](int device, const char* name, const void* data) {
    out->Add(device, name, ElementType::kInt64, data, {from.images, 3});
  };
  grids(from.device, "image_grid_thw", from.image_grid_thw);
  grids(kHostMemory, "image_grid_thw_host", from.image_grid_thw_host);
  const auto bounds = [&](int device, const char* name, const void* data) {
    out->Add(device, name, ElementType::kInt32, data, {from.vision_bounds});
  };
  bounds(from.device, "vision_cu_seqlens", from.vision_cu_seqlens);
  bounds(kHostMemory, "vision_cu_seqlens_host", from.vision_cu_seqlens_host);
  AddCrops(info, from, out);
  AddVideos(info, from, out);
}

// The numbers of rows are for the host alone, which starts the exchange.
void AddEmbeddings(const BatchInfo& info, const TensorAddresses& from,
                   Adder* out) {
  const EmbeddingPlan& plan = info.embeddings;
  if (!plan.planned()) return;
  const auto add = [&](int device, const char* name, const void* data,
                       size_t count) {
    out->Add(device, name, ElementType::kInt64, data,
             {static_cast<int64_t>(count)});
  };
  add(kHostMemory, "embedding_send_host", plan.send.data(), plan.send.size());
  add(kHostMemory, "embedding_receive_host", plan.receive.data(),
      plan.receive.size());
  add(from.device, "embedding_order", from.embedding_order, plan.order.size());
  add(kHostMemory, "embedding_order_host", plan.order.data(),
      plan.order.size());
}

}  // namespace

void ListTensors(const BatchInfo& info, const TensorAddresses& from,
                 std::vector<TensorView>* tensors) {
  tensors->clear();
  Adder out(tensors);
  if (info.role.module() == v1::MODULE_VISION) {
    AddImages(info, from, &out);
  } else {
    AddText(info, from, &out);
  }
  AddEmbeddings(info, from, &out);
}

}  // namespace ballast
