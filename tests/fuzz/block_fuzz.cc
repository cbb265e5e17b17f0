#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "proto/block/block_view.h"
#include "tests/fuzz/seeds.h"

namespace ballast {
namespace {

uint64_t Sum(absl::Span<const uint8_t> bytes) {
  uint64_t sum = 0;
  for (const uint8_t byte : bytes) sum += byte;
  return sum;
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ballast;  // NOLINT: one function
  static const BlockPlan* const plan = new BlockPlan(SeedPlan());
  // Exactly as large as the input, so that reading past the end is detected.
  std::vector<uint64_t> storage(size / sizeof(uint64_t));
  const size_t length = storage.size() * sizeof(uint64_t);
  uint8_t* const copy = reinterpret_cast<uint8_t*>(storage.data());
  if (length > 0) std::memcpy(copy, data, length);
  const absl::Span<const uint8_t> block(copy, length);

  ReadBlockHeader(absl::MakeConstSpan(data, size)).IgnoreError();
  const auto view = BlockView::Parse(block);
  if (!view.ok()) return 0;
  uint64_t sum = 0;
  for (const SampleRecord& sample : view->samples()) {
    sum += Sum(view->payload(sample));
    for (const ImageRecord& image : view->images(sample)) sum += image.height;
  }
  for (const ImageRecord& image : view->images()) sum += image.width;
  // Forces every byte to be read.
  static volatile uint64_t kept;
  kept = sum;
  static_cast<void>(kept);
  view->Matches(*plan).IgnoreError();
  return 0;
}
