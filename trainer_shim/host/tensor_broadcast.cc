#include "trainer_shim/host/tensor_broadcast.h"

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/status_macros.h"

namespace ballast {
absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch) {
  std::vector<uint8_t> placeholders;
  for (const PackedSample& sample : batch->samples) {
    placeholders.push_back(sample.placeholder);
  }
  // One region has all that the schedule does not give.
  std::vector<absl::Span<uint8_t>> slices;
  for (const absl::Span<uint8_t> slice :
       {absl::MakeSpan(batch->packed).first(batch->packed_bytes),
        absl::MakeSpan(placeholders)}) {
    if (!slice.empty()) slices.push_back(slice);
  }
  BALLAST_RETURN_IF_ERROR(peers->Broadcast(0, slices, nullptr));
  for (size_t i = 0; i < placeholders.size(); ++i) {
    batch->samples[i].placeholder = placeholders[i] != 0;
  }
  return absl::OkStatus();
}

}  // namespace ballast
