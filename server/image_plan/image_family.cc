#include "server/image_plan/image_family.h"

#include <algorithm>

namespace ballast {
namespace {

using enum ImageRule;

// Multiples of `side` from 1 to 6, heights first: LLaVA-OneVision's list.
std::vector<TileShape> SquareOfCanvases(uint32_t side) {
  std::vector<TileShape> canvases;
  for (uint32_t rows = 1; rows <= 6; ++rows) {
    for (uint32_t columns = 1; columns <= 6; ++columns) {
      canvases.push_back({rows * side, columns * side});
    }
  }
  return canvases;
}

ImageFamily Gemma3(absl::string_view name) {
  return {.name = std::string(name),
          .rule = kFixedSize,
          .filter = ResampleFilter::kBilinear,
          .patch = 14,
          .merge = 4,
          .tile = 896,
          .max_tiles = 1,
          .min_crop = 256,
          .min_ratio = 1.2};
}

ImageFamily Glm(absl::string_view name) {
  return {.name = std::string(name),
          .rule = kSmartResizeFrames,
          .layout = PatchLayout::kMergeOrder,
          .patch = 14,
          .merge = 2,
          .temporal_patch = 2,
          .min_pixels = 112 * 112,
          .max_pixels = 28 * 28 * 15000};
}

ImageFamily Idefics(absl::string_view name) {
  return {.name = std::string(name),
          .rule = kLongestEdgeTiles,
          .filter = ResampleFilter::kLanczos,
          .patch = 14,
          .merge = 2,
          .longest_edge = 4 * 364,
          .tile = 364};
}

std::vector<ImageFamily> AllFamilies() {
  std::vector<ImageFamily> all;
  all.push_back({.name = "ernie4_5_vl",
                 .rule = kSmartResize,
                 .layout = PatchLayout::kMergeOrder,
                 .patch = 14,
                 .merge = 2,
                 .min_pixels = 56 * 56,
                 .max_pixels = 28 * 28 * 6177});
  all.push_back(Gemma3("gemma3"));
  all.push_back(Gemma3("gemma3_pan_and_scan"));
  all.back().max_tiles = 4;
  all.push_back({.name = "gemma4",
                 .rule = kFillBudget,
                 .layout = PatchLayout::kRasterBatch,
                 .patch = 16,
                 .merge = 3,
                 .max_patches = 280 * 9});
  all.push_back(Glm("glm46v"));
  all.push_back(Glm("glm4v"));
  all.push_back({.name = "hunyuan_vl",
                 .rule = kSmartResize,
                 .layout = PatchLayout::kRasterOrder,
                 .patch = 16,
                 .merge = 2,
                 .min_pixels = 512 * 512,
                 .max_pixels = 2048 * 2048,
                 .tokens_a_row = 1,
                 .tokens_an_image = 2});
  all.push_back(Idefics("idefics3"));
  all.push_back({.name = "internvl3",
                 .rule = kTileGrid,
                 .patch = 14,
                 .merge = 2,
                 .tile = 448,
                 .min_tiles = 1,
                 .max_tiles = 12,
                 .tokens_an_image = 2});
  all.push_back({.name = "kimi_k25",
                 .rule = kShrinkAndPad,
                 .layout = PatchLayout::kKimi,
                 .patch = 14,
                 .merge = 2,
                 .max_patches = 16384,
                 .longest_edge = 512 * 14});
  all.push_back({.name = "llama4",
                 .rule = kBestFitTiles,
                 .filter = ResampleFilter::kBilinear,
                 .patch = 14,
                 .merge = 2,
                 .tile = 336,
                 .max_tiles = 16});
  all.push_back(
      {.name = "llava1_5", .rule = kCenterCrop, .patch = 14, .tile = 336});
  all.push_back({.name = "llava1_5_pad",
                 .rule = kPadSquare,
                 .patch = 14,
                 .tile = 336,
                 .background = {122, 116, 104}});  // CLIP's mean
  all.push_back(
      {.name = "llava_next",
       .rule = kPinpoints,
       .patch = 14,
       .tile = 336,
       .canvases = {
           {336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}});
  all.push_back({.name = "llava_onevision",
                 .rule = kPinpoints,
                 .patch = 14,
                 .max_patches = 9,
                 .tile = 384,
                 .canvases = SquareOfCanvases(384),
                 .background = {122, 116, 104},
                 .cut_alone = true});
  all.push_back({.name = "minicpmv4_6",
                 .rule = kSlices,
                 .layout = PatchLayout::kStrips,
                 .patch = 14,
                 .merge = 4,
                 .tile = 448,
                 .max_tiles = 9});
  all.push_back({.name = "pixtral",
                 .rule = kLongestEdge,
                 .patch = 16,
                 .longest_edge = 1024,
                 .tokens_a_row = 1});
  all.push_back({.name = "siglip",
                 .rule = kFixedSize,
                 .patch = 14,
                 .tile = 384,
                 .max_tiles = 1});
  all.push_back({.name = "siglip2",
                 .rule = kFitBudget,
                 .filter = ResampleFilter::kBilinear,
                 .layout = PatchLayout::kRasterPixels,
                 .patch = 16,
                 .max_patches = 256});
  all.push_back(Idefics("smolvlm"));
  for (ImageFamily& family : all) family.marks = MarksOf(family.name);
  return all;
}

const std::vector<ImageFamily>& Families() {
  static const auto& families = *new std::vector<ImageFamily>(AllFamilies());
  return families;
}

}  // namespace

const ImageFamily* FindImageFamily(absl::string_view name) {
  const auto found =
      std::find_if(Families().begin(), Families().end(),
                   [name](const ImageFamily& f) { return f.name == name; });
  return found == Families().end() ? nullptr : &*found;
}

std::vector<std::string> ImageFamilyNames() {
  std::vector<std::string> names;
  for (const ImageFamily& family : Families()) names.push_back(family.name);
  return names;
}

}  // namespace ballast
