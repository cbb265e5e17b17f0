#include "trainer_shim/host/tensor_broadcast.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

template <typename T>
void AddSlice(std::vector<T>* values,
              std::vector<absl::Span<uint8_t>>* slices) {
  if (values->empty()) return;
  slices->emplace_back(reinterpret_cast<uint8_t*>(values->data()),
                       values->size() * sizeof(T));
}

}  // namespace

absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch) {
  std::vector<uint8_t> placeholders;
  for (const PackedSample& sample : batch->samples) {
    placeholders.push_back(sample.placeholder);
  }
  std::vector<absl::Span<uint8_t>> slices;
  AddSlice(&batch->input_ids, &slices);
  AddSlice(&batch->labels, &slices);
  AddSlice(&batch->loss_mask, &slices);
  AddSlice(&batch->position_ids, &slices);
  AddSlice(&batch->attention_mask, &slices);
  AddSlice(&batch->pixel_values, &slices);
  AddSlice(&batch->pixel_values_bf16, &slices);
  AddSlice(&batch->pixel_values_videos, &slices);
  AddSlice(&batch->pixel_values_videos_bf16, &slices);
  AddSlice(&placeholders, &slices);
  BALLAST_RETURN_IF_ERROR(peers->Broadcast(0, slices, nullptr));
  for (size_t i = 0; i < placeholders.size(); ++i) {
    batch->samples[i].placeholder = placeholders[i] != 0;
  }
  return absl::OkStatus();
}

}  // namespace ballast
