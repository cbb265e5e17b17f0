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
  add("pixel_values_videos", batch.Get<float>("pixel_values_videos"));
  add("pixel_values_videos_bf16", batch.Get<uint16_t>("pixel_values_videos"));
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
             absl::Span<const T> pixels, uint64_t crop, Digest* digest) {
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

std::vector<TensorView> PackedBatch::Views() const {
  std::vector<TensorView> views;
  ListTensors(
      *this,
      {kHostMemory, packed.data(), lists.empty() ? nullptr : lists.data()},
      &views);
  return views;
}

const void* PackedBatch::Data(const BatchTensor& tensor) const {
  if (tensor.row->memory == Memory::kPacked) {
    return packed.data() + tensor.offset;
  }
  if (tensor.row->memory == Memory::kHost || lists.empty()) {
    return tensor.row->value(*this)->data;
  }
  return lists.data() + tensor.offset;
}

std::string DigestOf(const PackedBatch& batch) {
  return DigestOf(batch, batch.Views());
}

std::vector<std::string> SampleDigests(const PackedBatch& batch) {
  std::map<uint64_t, Items> items = ItemsOf(*batch.schedule);
  const std::vector<int32_t>& places = batch.text.cu_seqlens_padded;
  const uint64_t slices = batch.context.size;
  const auto grids = batch.Get<int64_t>("image_grid_thw");
  const auto positions = batch.Get<int64_t>("position_ids");
  uint64_t crop = 0;
  uint64_t video = 0;
  std::vector<std::string> digests;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    Digest digest;
    if (!places.empty()) {
      const uint64_t first = places[i] / slices;
      const uint64_t count = places[i + 1] / slices - first;
      const auto add = [&](absl::string_view name, const auto& values) {
        if (!values.empty()) digest.Add(name, values.data() + first, count);
      };
      add("input_ids", batch.Get<int64_t>("input_ids"));
      add("labels", batch.Get<int64_t>("labels"));
      add("loss_mask", batch.Get<float>("loss_mask"));
      const uint64_t tokens = positions.size() / batch.position_axes;
      for (uint32_t axis = 0; axis < batch.position_axes; ++axis) {
        add("position_ids", positions.subspan(axis * tokens, tokens));
      }
    }
    const Items& of = items[batch.samples[i].position];
    for (uint32_t left = of.crops; left > 0 && !grids.empty(); --left, ++crop) {
      digest.Add("image_grid_thw", grids.data() + 3 * crop, 3);
      AddCrop(batch, "pixel_values", batch.Get<float>("pixel_values"), crop,
              &digest);
      AddCrop(batch, "pixel_values_bf16", batch.Get<uint16_t>("pixel_values"),
              crop, &digest);
    }
    for (uint32_t left = of.videos; left > 0 && batch.videos.listed;
         --left, ++video) {
      AddVideo(batch, video, &digest);
    }
    digests.push_back(digest.Hex());
  }
  return digests;
}

}  // namespace ballast
