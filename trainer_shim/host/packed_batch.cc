#include "trainer_shim/host/packed_batch.h"

#include <map>
#include <memory>

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

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
  if (batch.embeddings.planned()) {
    digest.Add("embedding_send", batch.embeddings.send);
    digest.Add("embedding_receive", batch.embeddings.receive);
    digest.Add("embedding_order", batch.embeddings.order);
  }
  return digest.Hex();
}

std::vector<std::string> SampleDigests(const PackedBatch& batch) {
  std::map<uint64_t, uint32_t> images;  // by position
  for (const auto& micro_batch : batch.schedule->micro_batches()) {
    for (int i = 0; i < micro_batch.position_size(); ++i) {
      images[micro_batch.position(i)] = micro_batch.images(i);
    }
  }
  const uint64_t tokens = batch.cu_seqlens_padded.empty()
                              ? 0
                              : batch.cu_seqlens_padded.back() /
                                    batch.context.size;  // of this rank
  uint64_t image = 0;
  uint64_t patch = 0;
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
    for (uint32_t left = images[batch.samples[i].position];
         left > 0 && !batch.image_grid_thw.empty(); --left, ++image) {
      const int64_t* const grid = batch.image_grid_thw.data() + 3 * image;
      digest.Add("image_grid_thw", grid, 3);
      const uint64_t values =
          uint64_t(grid[0] * grid[1] * grid[2]) * batch.patch_values;
      const auto add = [&](absl::string_view name, const auto& pixels) {
        if (!pixels.empty()) digest.Add(name, pixels.data() + patch, values);
      };
      add("pixel_values", batch.pixel_values);
      add("pixel_values_bf16", batch.pixel_values_bf16);
      patch += values;
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
  const uint64_t values =
      bfloat16 ? batch.pixel_values_bf16.size() : batch.pixel_values.size();
  at.patches = batch.patch_values == 0 ? 0 : values / batch.patch_values;
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
  at.image_grid_thw = at.image_grid_thw_host = batch.image_grid_thw.data();
  at.vision_cu_seqlens = at.vision_cu_seqlens_host =
      batch.vision_cu_seqlens.data();
  at.embedding_order = batch.embeddings.order.data();
  return at;
}

}  // namespace ballast
