#include "trainer_shim/host/packed_batch.h"

#include <map>
#include <memory>

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "proto/schedule/image_columns.h"

namespace ballast {
namespace {

class Digest {
 public:
  Digest() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  template <typename T>
  void Add(absl::string_view name, const T* values, uint64_t count) {
    const uint64_t bytes = count * sizeof(T);
    Update(name.data(), name.size());
    Update(&bytes, sizeof(bytes));
    Update(values, bytes);
  }
  template <typename T>
  void Add(absl::string_view name, const std::vector<T>& values) {
    Add(name, values.data(), values.size());
  }

  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  void Update(const void* data, size_t bytes) {
    if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
  }

  std::unique_ptr<XXH3_state_t, Free> state_;
};

// The lists of crops that a batch has beside its grids.
void AddLists(const CropLayout& crops, Digest* digest) {
  if (!crops.lists_crops) return;
  if (crops.tiles) {
    const uint32_t tile[2] = {crops.shape.tile_h, crops.shape.tile_w};
    digest->Add("tile", tile, 2);
  }
  digest->Add("imgs_sizes", crops.imgs_sizes);
  digest->Add("crops_per_image", crops.crops_per_image);
  digest->Add("image_sizes", crops.image_sizes);
  digest->Add("spatial_shapes", crops.spatial_shapes);
  digest->Add("pixel_attention_mask", crops.pixel_attention_mask);
}

// The lists of videos and their pixels.
void AddVideos(const PackedBatch& batch, Digest* digest) {
  const VideoLayout& videos = batch.videos;
  if (!videos.listed) return;
  digest->Add("pixel_values_videos", batch.pixel_values_videos);
  digest->Add("pixel_values_videos_bf16", batch.pixel_values_videos_bf16);
  digest->Add("video_grid_thw", videos.vision.image_grid_thw);
  digest->Add("second_per_grid_ts", videos.second_per_grid_ts);
  digest->Add("video_cu_seqlens", videos.vision.cu_seqlens);
}

// The grid, the time and the values of video `video`.
void AddVideo(const PackedBatch& batch, uint64_t video, Digest* digest) {
  const VideoLayout& videos = batch.videos;
  digest->Add("video_grid_thw", videos.vision.image_grid_thw.data() + 3 * video,
              3);
  digest->Add("second_per_grid_ts", videos.second_per_grid_ts.data() + video,
              1);
  const uint64_t row = batch.crops.shape.row();
  const uint64_t first = videos.row_offsets[video] * row;
  const uint64_t count = videos.row_offsets[video + 1] * row - first;
  const auto add = [&](absl::string_view name, const auto& values) {
    if (!values.empty()) digest->Add(name, values.data() + first, count);
  };
  add("pixel_values_videos", batch.pixel_values_videos);
  add("pixel_values_videos_bf16", batch.pixel_values_videos_bf16);
}

// Crops and videos of a sample. Frames that a model takes as it takes an
// image's crops are crops: they lie in pixel_values.
struct Items {
  uint32_t crops = 0;
  uint32_t videos = 0;
};

// Of every sample of the step, by position.
std::map<uint64_t, Items> ItemsOf(const v1::StepSchedule& schedule) {
  std::map<uint64_t, Items> all;
  for (const auto& micro_batch : schedule.micro_batches()) {
    const std::vector<uint32_t> first = FirstEntriesOf(micro_batch).image;
    for (int i = 0; i < micro_batch.position_size(); ++i) {
      Items& items = all[micro_batch.position(i)];
      for (uint32_t k = first[i]; k < first[i + 1]; ++k) {
        if (GridT(micro_batch, k) != 0 &&
            micro_batch.seconds_per_patch(k) > 0) {
          ++items.videos;
        } else {
          items.crops += CropsOf(micro_batch, k);
        }
      }
    }
  }
  return all;
}

// The values of crop `crop`, without what a tile has beside and below it, which
// follows from the other crops of the batch.
template <typename T>
void AddCrop(const PackedBatch& batch, absl::string_view name,
             const std::vector<T>& pixels, uint64_t crop, Digest* digest) {
  if (pixels.empty()) return;
  const CropLayout& crops = batch.crops;
  const PatchShape& shape = crops.shape;
  const T* at = pixels.data() + crops.row_offsets[crop] * shape.row();
  if (!crops.tiles) {
    const uint64_t rows = crops.row_offsets[crop + 1] - crops.row_offsets[crop];
    return digest->Add(name, at, rows * shape.row());
  }
  const uint64_t height = crops.imgs_sizes[2 * crop];
  const uint64_t width = crops.imgs_sizes[2 * crop + 1];
  for (uint64_t line = 0; line < 3 * height; ++line) {
    const uint64_t y = line / height * shape.tile_h + line % height;
    digest->Add(name, at + y * shape.tile_w, width);
  }
}

}  // namespace

std::string DigestOf(const PackedBatch& batch) {
  Digest digest;
  digest.Add("input_ids", batch.input_ids);
  digest.Add("labels", batch.labels);
  digest.Add("loss_mask", batch.loss_mask);
  digest.Add("position_ids", batch.position_ids);
  if (batch.padded) digest.Add("attention_mask", batch.attention_mask);
  digest.Add("cu_seqlens", batch.cu_seqlens);
  digest.Add("cu_seqlens_padded", batch.cu_seqlens_padded);
  digest.Add("max_seqlen", &batch.max_seqlen, 1);
  digest.Add("pixel_values", batch.pixel_values);
  digest.Add("pixel_values_bf16", batch.pixel_values_bf16);
  digest.Add("image_grid_thw", batch.image_grid_thw);
  digest.Add("vision_cu_seqlens", batch.vision_cu_seqlens);
  digest.Add("vision_max_seqlen", &batch.vision_max_seqlen, 1);
  digest.Add("dummy_image", &batch.dummy_image, 1);
  AddLists(batch.crops, &digest);
  AddVideos(batch, &digest);
  if (batch.embeddings.planned()) {
    digest.Add("embedding_send", batch.embeddings.send);
    digest.Add("embedding_receive", batch.embeddings.receive);
    digest.Add("embedding_order", batch.embeddings.order);
  }
  return digest.Hex();
}

std::vector<std::string> SampleDigests(const PackedBatch& batch) {
  std::map<uint64_t, Items> items = ItemsOf(*batch.schedule);
  const uint64_t tokens = batch.cu_seqlens_padded.empty()
                              ? 0
                              : batch.cu_seqlens_padded.back() /
                                    batch.context.size;  // of this rank
  uint64_t crop = 0;
  uint64_t video = 0;
  std::vector<std::string> digests;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    Digest digest;
    if (tokens > 0) {
      const uint64_t first = batch.cu_seqlens_padded[i] / batch.context.size;
      const uint64_t count =
          batch.cu_seqlens_padded[i + 1] / batch.context.size - first;
      const auto add = [&](absl::string_view name, const auto& values,
                           uint64_t from) {
        if (!values.empty()) digest.Add(name, values.data() + from, count);
      };
      add("input_ids", batch.input_ids, first);
      add("labels", batch.labels, first);
      add("loss_mask", batch.loss_mask, first);
      for (uint32_t axis = 0; axis < batch.position_axes; ++axis) {
        add("position_ids", batch.position_ids, axis * tokens + first);
      }
    }
    const Items& of = items[batch.samples[i].position];
    for (uint32_t left = of.crops; left > 0 && !batch.image_grid_thw.empty();
         --left, ++crop) {
      digest.Add("image_grid_thw", batch.image_grid_thw.data() + 3 * crop, 3);
      AddCrop(batch, "pixel_values", batch.pixel_values, crop, &digest);
      AddCrop(batch, "pixel_values_bf16", batch.pixel_values_bf16, crop,
              &digest);
    }
    for (uint32_t left = of.videos; left > 0 && batch.videos.listed;
         --left, ++video) {
      AddVideo(batch, video, &digest);
    }
    digests.push_back(digest.Hex());
  }
  return digests;
}

TensorAddresses AddressesOf(const PackedBatch& batch) {
  const bool bfloat16 = batch.pixel_type == PixelType::kBfloat16;
  TensorAddresses at;
  at.tokens = batch.cu_seqlens_padded.empty()
                  ? 0
                  : batch.cu_seqlens_padded.back() / batch.context.size;
  at.images = batch.image_grid_thw.size() / 3;
  at.bounds = batch.cu_seqlens.size();
  at.vision_bounds = batch.vision_cu_seqlens.size();
  at.input_ids = batch.input_ids.data();
  at.labels = batch.labels.data();
  at.loss_mask = batch.loss_mask.data();
  at.position_ids = batch.position_ids.data();
  at.attention_mask = batch.attention_mask.data();
  at.cu_seqlens = at.cu_seqlens_host = batch.cu_seqlens.data();
  at.cu_seqlens_padded = at.cu_seqlens_padded_host =
      batch.cu_seqlens_padded.data();
  at.pixel_values =
      bfloat16 ? static_cast<const void*>(batch.pixel_values_bf16.data())
               : batch.pixel_values.data();
  at.pixel_values_videos =
      bfloat16 ? static_cast<const void*>(batch.pixel_values_videos_bf16.data())
               : batch.pixel_values_videos.data();
  at.video_grid_thw = batch.videos.vision.image_grid_thw.data();
  at.second_per_grid_ts = batch.videos.second_per_grid_ts.data();
  at.video_cu_seqlens = batch.videos.vision.cu_seqlens.data();
  at.image_grid_thw = at.image_grid_thw_host = batch.image_grid_thw.data();
  at.vision_cu_seqlens = at.vision_cu_seqlens_host =
      batch.vision_cu_seqlens.data();
  at.imgs_sizes = batch.crops.imgs_sizes.data();
  at.crops_per_image = batch.crops.crops_per_image.data();
  at.image_sizes = batch.crops.image_sizes.data();
  at.spatial_shapes = batch.crops.spatial_shapes.data();
  at.pixel_attention_mask = batch.crops.pixel_attention_mask.data();
  at.embedding_order = batch.embeddings.order.data();
  return at;
}

}  // namespace ballast
