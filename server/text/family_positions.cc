#include "server/text/family_positions.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"

namespace ballast {
namespace {

using enum PositionRule;

// Placeholders of an image.
uint64_t SpanOf(PositionRule rule, const PlacedImage& image) {
  const uint64_t rows = image.rows;
  // A newline a row, and one token at each end.
  if (rule == kColumnsRowsImage)
    return rows * (uint64_t{image.columns} + 1) + 2;
  return rows * image.columns;
}

absl::Status Check(PositionRule rule, uint32_t tokens,
                   absl::Span<const PlacedImage> images, size_t room) {
  const uint64_t wanted = uint64_t{AxesOf(rule)} * tokens;
  if (room != wanted || tokens > uint32_t{1} << 31) {
    return absl::InvalidArgumentError(
        absl::StrCat("room for ", room, " position ids; wanted ", wanted,
                     " for ", tokens, " tokens of ", AxesOf(rule), " axes"));
  }
  uint64_t end = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    const bool is_small =
        images[i].rows <= tokens && images[i].columns <= tokens;
    const uint64_t after =
        is_small ? images[i].first + SpanOf(rule, images[i]) : UINT64_MAX;
    if (images[i].first < end || after > tokens) {
      return DataFaultError(absl::StrCat(
          "image ", i, " of ", images[i].rows, "x", images[i].columns,
          " tokens begins at token ", images[i].first,
          "; wanted it from token ", end, " on and within ", tokens));
    }
    end = after;
  }
  return absl::OkStatus();
}

void WriteRowsAndColumns(uint32_t tokens, absl::Span<const PlacedImage> images,
                         absl::Span<int32_t> out) {
  int32_t* const axes[] = {out.data(), out.data() + tokens,
                           out.data() + 2 * size_t{tokens}};
  int32_t next = 0;
  uint32_t at = 0;
  const auto write_text = [&](uint32_t end) {
    for (; at < end; ++at, ++next) {
      for (int32_t* axis : axes) axis[at] = next;
    }
  };
  for (const PlacedImage& image : images) {
    write_text(image.first);
    for (uint32_t row = 0; row < image.rows; ++row) {
      for (uint32_t column = 0; column < image.columns; ++column, ++at) {
        axes[0][at] = next;
        axes[1][at] = next + static_cast<int32_t>(row);
        axes[2][at] = next + static_cast<int32_t>(column);
      }
    }
    next += static_cast<int32_t>(std::max(image.rows, image.columns));
  }
  write_text(tokens);
}

void WriteColumnsRowsImage(uint32_t tokens,
                           absl::Span<const PlacedImage> images,
                           absl::Span<int32_t> out) {
  const size_t stride = tokens;
  for (size_t i = 0; i < images.size(); ++i) {
    size_t at = size_t{images[i].first} + 1;
    for (uint32_t row = 0; row < images[i].rows; ++row) {
      for (uint32_t column = 0; column <= images[i].columns; ++column, ++at) {
        out[stride + at] = static_cast<int32_t>(column);
        out[2 * stride + at] = static_cast<int32_t>(row);
        out[3 * stride + at] = static_cast<int32_t>(i);
      }
    }
  }
}

}  // namespace

PositionRule PositionRuleOf(absl::string_view family) {
  if (family == "ernie4_5_vl" || family == "glm46v" || family == "glm4v") {
    return kRowsAndColumns;
  }
  return family == "hunyuan_vl" ? kColumnsRowsImage : kSequence;
}

uint32_t AxesOf(PositionRule rule) {
  switch (rule) {
    case kSequence:
      return 1;
    case kRowsAndColumns:
      return 3;
    case kColumnsRowsImage:
      break;
  }
  return 4;
}

absl::Status NumberTokens(PositionRule rule, uint32_t tokens,
                          absl::Span<const PlacedImage> images,
                          absl::Span<int32_t> out) {
  if (absl::Status status = Check(rule, tokens, images, out.size());
      !status.ok()) {
    return status;
  }
  if (rule == kRowsAndColumns) {
    WriteRowsAndColumns(tokens, images, out);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<int32_t>(i % tokens);
  }
  if (rule == kColumnsRowsImage) WriteColumnsRowsImage(tokens, images, out);
  return absl::OkStatus();
}

}  // namespace ballast
