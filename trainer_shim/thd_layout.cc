#include "trainer_shim/thd_layout.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"

namespace ballast {

namespace {

constexpr uint64_t kMaxLength = std::numeric_limits<int32_t>::max();

absl::Status Inconsistent(absl::string_view array, size_t entry, int64_t found,
                          absl::string_view wanted) {
  return absl::InternalError(absl::StrCat("THD layout: ", array, "[", entry,
                                          "] is ", found, ", wanted ", wanted));
}

}  // namespace

absl::Status TextLayout::Validate(uint32_t align) const {
  if (cu_seqlens.empty() || cu_seqlens.size() != cu_seqlens_padded.size()) {
    return Inconsistent("length of cu_seqlens_padded", 0,
                        cu_seqlens_padded.size(),
                        absl::StrCat(cu_seqlens.size(), " and at least 1"));
  }
  if (cu_seqlens[0] != 0) {
    return Inconsistent("cu_seqlens", 0, cu_seqlens[0], "0");
  }
  if (cu_seqlens_padded[0] != 0) {
    return Inconsistent("cu_seqlens_padded", 0, cu_seqlens_padded[0], "0");
  }
  int32_t longest = 0;
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    const int32_t real = cu_seqlens[i] - cu_seqlens[i - 1];
    const int32_t padded = cu_seqlens_padded[i] - cu_seqlens_padded[i - 1];
    if (real <= 0) {
      return Inconsistent("cu_seqlens", i, cu_seqlens[i],
                          absl::StrCat("more than ", cu_seqlens[i - 1]));
    }
    if (padded < real || padded % static_cast<int64_t>(align) != 0) {
      return Inconsistent(
          "cu_seqlens_padded", i, cu_seqlens_padded[i],
          absl::StrCat(cu_seqlens_padded[i - 1], " and a multiple of ", align,
                       " that is at least ", real));
    }
    longest = std::max(longest, padded);
  }
  if (max_seqlen != longest) {
    return Inconsistent("max_seqlen", 0, max_seqlen, absl::StrCat(longest));
  }
  return absl::OkStatus();
}

absl::StatusOr<TextLayout> LayOutText(absl::Span<const uint32_t> tokens,
                                      uint32_t align) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError(
        "empty packed shard: the rank owns no sample of this micro-batch");
  }
  if (align == 0) {
    return absl::InvalidArgumentError("packing.align is 0, wanted at least 1");
  }
  TextLayout layout;
  layout.cu_seqlens.reserve(tokens.size() + 1);
  layout.cu_seqlens_padded.reserve(tokens.size() + 1);
  layout.cu_seqlens.push_back(0);
  layout.cu_seqlens_padded.push_back(0);
  uint64_t real = 0;
  uint64_t padded = 0;
  uint64_t longest = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sample ", i, " of the packed shard has no tokens"));
    }
    const uint64_t length = AlignUp(tokens[i], align);
    real += tokens[i];
    padded += length;
    longest = std::max(longest, length);
    if (padded > kMaxLength) {
      return absl::InvalidArgumentError(absl::StrCat(
          "packed shard has ", padded, " tokens after sample ", i,
          ", wanted at most ", kMaxLength, " (cu_seqlens are int32)"));
    }
    layout.cu_seqlens.push_back(real);
    layout.cu_seqlens_padded.push_back(padded);
  }
  layout.max_seqlen = longest;
  BALLAST_RETURN_IF_ERROR(layout.Validate(align));
  return layout;
}

absl::StatusOr<TextLayout> LayOutRows(absl::Span<const uint32_t> tokens,
                                      uint64_t row_length) {
  if (row_length == 0 || row_length > kMaxLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("the row length is ", row_length, ", wanted 1 to ",
                     kMaxLength, " (cu_seqlens are int32)"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] <= row_length) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sample ", i, " of the padded shard has ", tokens[i],
                     " tokens, wanted at most the row length, ", row_length,
                     ": raise packing.row_length or lower batch.max_tokens"));
  }
  // No sample is longer than a row, so each takes exactly one.
  return LayOutText(tokens, row_length);
}

absl::Status VisionLayout::Validate() const {
  if (patch_offsets.empty() || cu_seqlens.empty() ||
      image_grid_thw.size() != 3 * (patch_offsets.size() - 1)) {
    return Inconsistent(
        "length of image_grid_thw", 0, image_grid_thw.size(),
        absl::StrCat("3 a image of ", patch_offsets.size(), " less 1"));
  }
  int64_t row = 0;
  int64_t longest = 0;
  size_t segment = 0;
  for (size_t i = 0; i < patch_offsets.size() - 1; ++i) {
    if (patch_offsets[i] != row) {
      return Inconsistent("patch_offsets", i, patch_offsets[i],
                          absl::StrCat(row));
    }
    const int64_t area = image_grid_thw[3 * i + 1] * image_grid_thw[3 * i + 2];
    longest = std::max(longest, area);
    for (int64_t t = 0; t < image_grid_thw[3 * i]; ++t) {
      if (segment >= cu_seqlens.size() || cu_seqlens[segment] != row) {
        return Inconsistent("cu_seqlens", segment, -1, absl::StrCat(row));
      }
      ++segment;
      row += area;
    }
  }
  if (patch_offsets.back() != row) {
    return Inconsistent("patch_offsets", patch_offsets.size() - 1,
                        patch_offsets.back(), absl::StrCat(row));
  }
  if (segment + 1 != cu_seqlens.size() || cu_seqlens.back() != row) {
    return Inconsistent("cu_seqlens", cu_seqlens.size() - 1, cu_seqlens.back(),
                        absl::StrCat(row));
  }
  if (max_seqlen != longest) {
    return Inconsistent("max_seqlen", 0, max_seqlen, absl::StrCat(longest));
  }
  return absl::OkStatus();
}

absl::StatusOr<VisionLayout> LayOutVision(
    absl::Span<const ImageRecord> images) {
  VisionLayout layout;
  layout.image_grid_thw.reserve(3 * images.size());
  layout.patch_offsets.reserve(images.size() + 1);
  layout.cu_seqlens.reserve(images.size() + 1);
  layout.patch_offsets.push_back(0);
  layout.cu_seqlens.push_back(0);
  uint64_t row = 0;
  uint64_t longest = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const ImageRecord& image = images[i];
    const uint64_t area = uint64_t{image.grid_h} * image.grid_w;
    if (area == 0 || image.grid_t == 0 || area > kMaxLength ||
        image.grid_t > (kMaxLength - row) / area) {
      return absl::InvalidArgumentError(absl::StrCat(
          "image ", i, " of the packed shard has grid ", image.grid_t, "x",
          image.grid_h, "x", image.grid_w, " after ", row,
          " patches, wanted no side of 0 and at most ", kMaxLength,
          " patches in all (cu_seqlens are int32)"));
    }
    layout.image_grid_thw.insert(layout.image_grid_thw.end(),
                                 {image.grid_t, image.grid_h, image.grid_w});
    for (uint32_t t = 0; t < image.grid_t; ++t) {
      row += area;
      layout.cu_seqlens.push_back(row);
    }
    layout.patch_offsets.push_back(row);
    longest = std::max(longest, area);
  }
  layout.max_seqlen = longest;
  BALLAST_RETURN_IF_ERROR(layout.Validate());
  return layout;
}

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
