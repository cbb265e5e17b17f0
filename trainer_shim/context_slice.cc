#include "trainer_shim/context_slice.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

absl::Status CheckBounds(absl::Span<const int32_t> bounds, uint32_t size) {
  if (bounds.size() < 2 || bounds[0] != 0 || bounds.back() <= 0) {
    return absl::InvalidArgumentError(
        "cu_seqlens_padded: wanted 0 and then the end of at least one sample");
  }
  const int64_t pieces = size > 1 ? 2 * int64_t{size} : 1;
  for (size_t i = 1; i < bounds.size(); ++i) {
    if (bounds[i] >= bounds[i - 1] && bounds[i] % pieces == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "cu_seqlens_padded[", i, "] is ", bounds[i], ", wanted a multiple of ",
        pieces, " (2 * context ranks) that is at least ", bounds[i - 1]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContextAlign(uint32_t size, uint32_t align) {
  if (size <= 1 || align % (uint64_t{2} * size) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("samples are padded to multiples of ", align,
                   " tokens, wanted of ", uint64_t{2} * size, ": ", size,
                   " context-parallel ranks cut each sample into ",
                   uint64_t{2} * size, " pieces (packing.align: auto)"));
}

absl::StatusOr<std::vector<int32_t>> ContextIndices(
    absl::Span<const int32_t> cu_seqlens_padded, ContextSlice slice) {
  if (slice.rank >= slice.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "context rank ", slice.rank, " of ", slice.size, " does not exist"));
  }
  BALLAST_RETURN_IF_ERROR(CheckBounds(cu_seqlens_padded, slice.size));
  std::vector<int32_t> indices;
  indices.reserve(cu_seqlens_padded.back() / slice.size);
  for (size_t s = 0; s + 1 < cu_seqlens_padded.size(); ++s) {
    const uint64_t begin = cu_seqlens_padded[s];
    const uint64_t local = (cu_seqlens_padded[s + 1] - begin) / slice.size;
    for (uint64_t i = 0; i < local; ++i) {
      indices.push_back(begin + ContextOffset(i, local, slice));
    }
  }
  return indices;
}

}  // namespace ballast
