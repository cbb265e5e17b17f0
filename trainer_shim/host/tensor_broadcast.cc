#include "trainer_shim/host/tensor_broadcast.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Calls `use` with the address and size of each tensor that is sent, in order.
// Batch: PackedBatch, const or not.
template <typename Batch, typename Use>
void ForEachTensor(Batch* batch, const Use& use) {
  const auto each = [&](auto* values) {
    if (!values->empty()) {
      use(values->data(), values->size() * sizeof((*values)[0]));
    }
  };
  each(&batch->input_ids);
  each(&batch->labels);
  each(&batch->loss_mask);
  each(&batch->position_ids);
  each(&batch->pixel_values);
  each(&batch->pixel_values_bf16);
}

}  // namespace

absl::Status SendBatch(const PackedBatch& batch, Communicator* peers) {
  std::vector<uint8_t> placeholders;
  for (const PackedSample& sample : batch.samples) {
    placeholders.push_back(sample.placeholder);
  }
  std::vector<SendSlice> sends;
  for (uint32_t peer = 1; peer < peers->size(); ++peer) {
    ForEachTensor(&batch, [&](const auto* data, size_t bytes) {
      sends.push_back({peer, {reinterpret_cast<const uint8_t*>(data), bytes}});
    });
    sends.push_back({peer, placeholders});
  }
  return peers->AllToAllV(sends, {});
}

absl::Status ReceiveBatch(Communicator* peers, PackedBatch* batch) {
  std::vector<uint8_t> placeholders(batch->samples.size());
  std::vector<ReceiveSlice> receives;
  ForEachTensor(batch, [&](auto* data, size_t bytes) {
    receives.push_back({0, {reinterpret_cast<uint8_t*>(data), bytes}});
  });
  receives.push_back({0, absl::MakeSpan(placeholders)});
  BALLAST_RETURN_IF_ERROR(peers->AllToAllV({}, receives));
  for (size_t i = 0; i < placeholders.size(); ++i) {
    batch->samples[i].placeholder = placeholders[i] != 0;
  }
  return absl::OkStatus();
}

}  // namespace ballast
