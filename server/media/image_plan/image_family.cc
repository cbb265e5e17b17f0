#include "server/media/image_plan/image_family.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace ballast {

std::vector<const std::string*> GetTexts(const ImageMarks& marks) {
  return {&marks.placeholder, &marks.before,       &marks.after,
          &marks.row_end,     &marks.last_row_end, &marks.view_before,
          &marks.view_after,  &marks.tile_before,  &marks.tile_after,
          &marks.tile_seam,   &marks.tile_row_end, &marks.tile_row_seam,
          &marks.view_seam,   &marks.cut_before};
}

bool MarksParts(const ImageMarks& marks) {
  for (const std::string* text : GetTexts(marks)) {
    const bool is_of_image = text == &marks.placeholder ||
                             text == &marks.before || text == &marks.after;
    if (!is_of_image && !text->empty()) return true;
  }
  return false;
}

namespace {

using enum ImageRule;
using Fault = std::optional<FamilyFault>;

// Larger numbers would plan more pixels than any model takes.
constexpr uint32_t kMaxSideNumber = 1 << 16;

constexpr uint32_t Rules(std::initializer_list<ImageRule> rules) {
  uint32_t bits = 0;
  for (const ImageRule rule : rules) bits |= 1u << static_cast<int>(rule);
  return bits;
}

// Numbers and the rules that read them; every rule reads all others.
constexpr struct {
  absl::string_view key;
  uint32_t rules;
} kReadBy[] = {
    {"min_pixels", Rules({kSmartResize, kSmartResizeFrames})},
    {"max_pixels", Rules({kSmartResize, kSmartResizeFrames})},
    {"max_patches",
     Rules({kFillBudget, kFitBudget, kShrinkAndPad, kPinpoints})},
    {"longest_edge", Rules({kShrinkAndPad, kLongestEdge, kLongestEdgeTiles})},
    {"tile", Rules({kFixedSize, kCenterCrop, kPadSquare, kPinpoints, kTileGrid,
                    kLongestEdgeTiles, kBestFitTiles, kSlices})},
    {"min_tiles", Rules({kTileGrid})},
    {"max_tiles", Rules({kFixedSize, kTileGrid, kBestFitTiles, kSlices})},
    {"canvases", Rules({kPinpoints})},
    {"background", Rules({kPadSquare, kPinpoints})},
    {"cut_alone", Rules({kPinpoints})},
    {"min_crop", Rules({kFixedSize})},
    {"min_ratio", Rules({kFixedSize})},
    {"share_tiles", Rules({kTileGrid})},
    {"round_sides", Rules({kLongestEdge})},
};

template <typename Found>
Fault Wrong(absl::string_view key, const Found& found,
            absl::string_view wanted) {
  return FamilyFault{std::string(key), absl::StrCat(found),
                     std::string(wanted)};
}

bool IsSide(uint64_t n) { return n >= 1 && n <= kMaxSideNumber; }

Fault CheckPatch(const ImageFamily& f) {
  if (!IsSide(f.patch)) return Wrong("patch", f.patch, "1 to 65536");
  if (!IsSide(f.merge)) return Wrong("merge", f.merge, "1 to 65536");
  if (uint64_t{f.patch} * f.merge > kMaxSideNumber) {
    return Wrong(
        "merge", f.merge,
        absl::StrCat("at most 65536 pixels a token, with patch ", f.patch));
  }
  if (!IsSide(f.temporal_patch)) {
    return Wrong("temporal_patch", f.temporal_patch, "1 to 65536");
  }
  return std::nullopt;
}

Fault CheckBounds(const ImageFamily& f) {
  if (ReadsNumber(f.rule, "max_pixels") &&
      (f.min_pixels > f.max_pixels || f.max_pixels == 0)) {
    return Wrong("max_pixels", f.max_pixels,
                 absl::StrCat("at least min_pixels, ", f.min_pixels));
  }
  if (ReadsNumber(f.rule, "max_patches") && f.rule != kPinpoints &&
      f.max_patches == 0) {
    return Wrong("max_patches", 0, "1 or more");
  }
  if (ReadsNumber(f.rule, "longest_edge") && !IsSide(f.longest_edge)) {
    return Wrong("longest_edge", f.longest_edge, "1 to 65536");
  }
  return std::nullopt;
}

Fault CheckTiles(const ImageFamily& f) {
  if (!ReadsNumber(f.rule, "tile")) return std::nullopt;
  if (!IsSide(f.tile) || f.tile < f.patch) {
    return Wrong("tile", f.tile, "the side of a patch to 65536");
  }
  if (ReadsNumber(f.rule, "max_tiles") &&
      (f.max_tiles < 1 || f.max_tiles > kMaxFamilyTiles ||
       f.min_tiles > f.max_tiles)) {
    return Wrong("max_tiles", f.max_tiles, "min_tiles to 1024");
  }
  if (f.rule == kFixedSize && f.max_tiles > 1 && f.min_crop == 0) {
    return Wrong("min_crop", 0, "1 or more");
  }
  if (f.rule != kPinpoints) return std::nullopt;
  if (f.canvases.empty()) return Wrong("canvases", "none", "at least one");
  for (size_t i = 0; i < f.canvases.size(); ++i) {
    const TileShape& canvas = f.canvases[i];
    for (const bool is_height : {true, false}) {
      const uint32_t length = is_height ? canvas.height : canvas.width;
      if (IsSide(length) && length % f.tile == 0) continue;
      return Wrong(
          absl::StrCat("canvases[", i, "].", is_height ? "height" : "width"),
          length, absl::StrCat("a multiple of tile, ", f.tile));
    }
  }
  return std::nullopt;
}

Fault CheckMarks(const ImageFamily& f) {
  const ImageMarks& marks = f.marks;
  if (marks.placeholder.empty() &&
      (MarksParts(marks) || !marks.before.empty() || !marks.after.empty())) {
    return Wrong("marks.placeholder", "none",
                 "the token that the other marks surround");
  }
  if (marks.row_end.empty() != marks.last_row_end.empty()) {
    return Wrong(marks.row_end.empty() ? "marks.row_end" : "marks.last_row_end",
                 "none", "both row_end and last_row_end, or neither");
  }
  if (!marks.row_end.empty() &&
      (f.tokens_a_row != 1 || ReadsNumber(f.rule, "tile"))) {
    return Wrong("marks.row_end", marks.row_end,
                 "it only with a rule of one crop without tiles, and with "
                 "tokens_a_row: 1");
  }
  if (f.rule == kPinpoints && f.tokens_a_row + f.tokens_an_image != 0) {
    return Wrong(f.tokens_a_row != 0 ? "tokens_a_row" : "tokens_an_image",
                 f.tokens_a_row != 0 ? f.tokens_a_row : f.tokens_an_image,
                 "0 for this rule, whose tokens follow from the canvas");
  }
  if (f.tokens_an_image != 0 && MarksParts(marks) && marks.before.empty() &&
      marks.after.empty()) {
    return Wrong("tokens_an_image", f.tokens_an_image,
                 "0, or before and after among the marks, which write them");
  }
  if (f.rule == kPinpoints && MarksParts(marks)) {
    return Wrong("marks", "marks of views or tiles",
                 "only placeholder, before and after for this rule, whose "
                 "placeholders form one run");
  }
  return std::nullopt;
}

}  // namespace

std::optional<FamilyFault> FindFamilyFault(const ImageFamily& family) {
  for (Fault (*check)(const ImageFamily&) :
       {CheckPatch, CheckBounds, CheckTiles, CheckMarks}) {
    if (Fault fault = check(family)) return fault;
  }
  return std::nullopt;
}

bool HasSquareCrops(const ImageFamily& family) {
  switch (family.rule) {
    case kFixedSize:
    case kCenterCrop:
    case kPadSquare:
    case kPinpoints:
    case kTileGrid:
    case kLongestEdgeTiles:
    case kBestFitTiles:
      return true;
    default:
      return false;
  }
}

std::string FindAxesFault(const ImageFamily& family, uint32_t axes) {
  if (axes <= 1) return "";
  if (axes != 3 && axes != 4) return "1, 3 or 4";
  // Whether every image is one crop of rows and columns of placeholders.
  const bool has_grids = !HasSquareCrops(family) && family.rule != kSlices &&
                         !MarksParts(family.marks);
  const bool has_newlines =
      family.tokens_a_row == 1 && family.tokens_an_image == 2;
  const bool is_bare = family.tokens_a_row == 0 && family.tokens_an_image == 0;
  if (has_grids && (axes == 3 ? is_bare : has_newlines)) return "";
  return absl::StrCat(
      "1, since ", axes, " axes need images of one run of placeholders, ",
      axes == 3 ? "rows of columns and no other"
                : "with one after each row and one at each end");
}

bool ReadsNumber(ImageRule rule, absl::string_view key) {
  for (const auto& read : kReadBy) {
    if (read.key == key) return (read.rules & Rules({rule})) != 0;
  }
  return true;
}

}  // namespace ballast
