#include "server/media/image_plan/image_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

// Joins adjacent pieces of one kind.
class PieceWriter {
 public:
  void AddText(absl::string_view text) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().placeholders != 0) {
      pieces_.emplace_back();
    }
    absl::StrAppend(&pieces_.back().text, text);
  }

  void AddRun(uint64_t placeholders) {
    if (placeholders == 0) return;
    if (pieces_.empty() || pieces_.back().placeholders == 0) {
      pieces_.emplace_back();
    }
    pieces_.back().placeholders += placeholders;
  }

  std::vector<ImageTextPiece> Take() && { return std::move(pieces_); }

 private:
  std::vector<ImageTextPiece> pieces_;
};

// Tokens of one crop of a stage.
struct TokenGrid {
  uint64_t rows = 0;
  uint64_t columns = 0;  // with placeholders at the end of a row
};

TokenGrid GetGrid(const PlanStage& stage, const ImageFamily& family) {
  const uint32_t side = family.patch * family.merge;
  const bool row_ends_are_text = !family.marks.row_end.empty();
  return {
      stage.crop.height / side,
      stage.crop.width / side + (row_ends_are_text ? 0 : family.tokens_a_row)};
}

void AddView(const PlanStage& stage, const ImageFamily& family,
             PieceWriter& out) {
  const ImageMarks& marks = family.marks;
  const TokenGrid grid = GetGrid(stage, family);
  out.AddText(marks.view_before);
  if (marks.row_end.empty()) {
    out.AddRun(grid.rows * grid.columns);
  } else {
    for (uint64_t row = 1; row <= grid.rows; ++row) {
      out.AddRun(grid.columns);
      out.AddText(row < grid.rows ? marks.row_end : marks.last_row_end);
    }
  }
  out.AddText(marks.view_after);
}

// The tiles of an image; `first` is a stage with one or all of them.
void AddTiles(const PlanStage& first, const ImagePlan& plan,
              const ImageFamily& family, PieceWriter& out) {
  const ImageMarks& marks = family.marks;
  const TokenGrid grid = GetGrid(first, family);
  for (uint32_t row = 1; row <= plan.tile_rows; ++row) {
    for (uint32_t column = 1; column <= plan.tile_columns; ++column) {
      const auto numbered = [&](absl::string_view text) {
        const uint32_t tile = (row - 1) * plan.tile_columns + column;
        return absl::StrReplaceAll(text, {{"{row}", absl::StrCat(row)},
                                          {"{column}", absl::StrCat(column)},
                                          {"{tile}", absl::StrCat(tile)}});
      };
      out.AddText(numbered(marks.tile_before));
      out.AddRun(grid.rows * grid.columns);
      out.AddText(numbered(marks.tile_after));
      if (column < plan.tile_columns) out.AddText(marks.tile_seam);
    }
    out.AddText(marks.tile_row_end);
    if (row < plan.tile_rows) out.AddText(marks.tile_row_seam);
  }
}

void AddParts(const ImageFamily& family, const ImagePlan& plan,
              PieceWriter& out) {
  // Stages without crops are only sources of others.
  const auto is_seen = [](const PlanStage& stage) { return stage.rows != 0; };
  const PlanStage& first =
      *std::find_if(plan.stages.begin(), plan.stages.end(), is_seen);
  const PlanStage& last = plan.stages.back();
  if (plan.tile_rows == 0) return AddView(first, family, out);
  out.AddText(family.marks.cut_before);
  const bool view_is_first =
      family.rule == ImageRule::kFixedSize || family.rule == ImageRule::kSlices;
  if (view_is_first) {
    AddView(first, family, out);
    out.AddText(family.marks.view_seam);
    AddTiles(last, plan, family, out);
  } else {
    AddTiles(first, plan, family, out);
    out.AddText(family.marks.view_seam);
    AddView(last, family, out);
  }
}

// The length of the special token at the start of `text`; 0 if it has none.
size_t SpecialTokenLength(absl::string_view text) {
  const char close = text[0] == '<' ? '>' : text[0] == '[' ? ']' : '\0';
  if (close == '\0') return 0;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == close) return i + 1;
    if (text[i] == text[0] || absl::ascii_isspace(text[i])) return 0;
  }
  return 0;
}

}  // namespace

std::vector<ImageTextPiece> ImageText(const ImageFamily& family,
                                      const ImagePlan& plan, uint32_t image) {
  const ImageMarks& marks = family.marks;
  PieceWriter out;
  if (marks.placeholder.empty()) return {};
  if (plan.recipe != nullptr && !plan.recipe->text.empty()) {
    for (const ImageTextPiece& piece : plan.recipe->text) {
      out.AddText(piece.text);
      out.AddRun(piece.placeholders);
    }
    return std::move(out).Take();
  }
  const std::string number = absl::StrCat(image);
  out.AddText(absl::StrReplaceAll(marks.before, {{"{image}", number}}));
  if (MarksParts(marks)) {
    AddParts(family, plan, out);
  } else {
    out.AddRun(plan.placeholders);
  }
  out.AddText(absl::StrReplaceAll(marks.after, {{"{image}", number}}));
  return std::move(out).Take();
}

std::vector<absl::string_view> SpecialTokensIn(absl::string_view text) {
  std::vector<absl::string_view> tokens;
  while (!text.empty()) {
    const size_t length = SpecialTokenLength(text);
    if (length != 0) tokens.push_back(text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return tokens;
}

}  // namespace ballast
