#ifndef BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_FAMILY_H_
#define BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_FAMILY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/image/resample_weights.h"

namespace ballast {

// How a family turns an image's size into crops. Each rule is the arithmetic of
// one image processor of transformers, in its order of operations; the fields
// of ImageFamily that it reads are named with it.
enum class ImageRule {
  // Both sides multiples of patch*merge, the area within min_pixels..max_pixels
  // (Qwen's smart_resize).
  kSmartResize,
  // Likewise with the area of `temporal_patch` frames, after enlarging images
  // with a side under patch*merge (GLM).
  kSmartResizeFrames,
  // The largest area of at most max_patches patches, sides multiples of
  // patch*merge (Gemma 4).
  kFillBudget,
  // At most max_patches patches, sides rounded up to multiples of patch (SigLIP
  // 2 NaFlex).
  kFitBudget,
  // Only shrinks: at most max_patches patches and longest_edge pixels a side;
  // then black padding to multiples of patch*merge (Kimi K2.5).
  kShrinkAndPad,
  // Shrinks to a side of at most longest_edge (round_sides), sides rounded up
  // to
  // multiples of patch*merge (Pixtral).
  kLongestEdge,
  // Exactly tile x tile, whatever the shape; then crops of long images if
  // max_tiles is above 1 (SigLIP; Gemma 3 with pan-and-scan: min_crop,
  // min_ratio).
  kFixedSize,
  // The shorter side becomes `tile`; the centre is kept (LLaVA 1.5).
  kCenterCrop,
  // Padded with `background` to a square, then resized to `tile` (LLaVA 1.5).
  kPadSquare,
  // A thumbnail, then tiles of the canvas in `canvases` that wastes least, with
  // the image in its centre (LLaVA-NeXT, LLaVA-OneVision: max_patches bounds
  // the tokens, in tiles; 0: no bound).
  kPinpoints,
  // min_tiles..max_tiles tiles in the grid nearest in shape, then a thumbnail
  // if there are two or more (InternVL: share_tiles).
  kTileGrid,
  // The longer side becomes longest_edge, then both multiples of `tile`; tiles,
  // then a global view (Idefics 3, SmolVLM).
  kLongestEdgeTiles,
  // Up to max_tiles tiles of the canvas that needs least padding, the image in
  // its corner; then a global view if there are two or more (Llama 4).
  kBestFitTiles,
  // A view of about tile*tile pixels, then up to max_tiles slices as large
  // (MiniCPM-V).
  kSlices,
};

// The shape in which the family's processor returns pixels.
enum class PatchLayout {
  kCrops,         // [crops, 3, height, width]
  kMergeOrder,    // [patches, 3*temporal*p*p], patches of a token adjacent
  kRasterOrder,   // [patches, 3*temporal*p*p], row by row
  kRasterPixels,  // [max_patches, p*p*3], row by row, zeros at the end
  kRasterBatch,   // [1, max_patches, p*p*3], likewise
  kKimi,          // [patches, 3, p, p], row by row
  kStrips,        // [1, 3, p, sum of patches * p], crop after crop
};

struct TileShape {
  uint32_t height = 0;
  uint32_t width = 0;
};

// Limit of a family's tiles: more crops than any model takes.
inline constexpr uint32_t kMaxFamilyTiles = 1024;

// The text that represents an image in every text of a family, in UTF-8: runs
// of the placeholder and the other texts around them. Most families' processors
// write all of it. The processors of ERNIE, GLM, HunyuanVL and Kimi write the
// run alone, and the chat template writes before and after. These texts still
// belong to the image, also in a document or another chat template. Special
// tokens are spelled out; a substring `<...>` or `[...]` without white space is
// one. Empty texts are not written.
//
// A view is the placeholders of the whole image: all of them or, for an image
// that is cut into tiles, the placeholders of its thumbnail. The image is
// written as
//
//   uncut   before, view, after
//   cut     before, cut_before, view and tiles in the order of the crops with
//           view_seam between, after
struct ImageMarks {
  std::string placeholder =
      {};  // the token that the model replaces by features
  // Around the image. `{image}` is replaced by its number in its sample, from
  // 0.
  std::string before = {};
  std::string after = {};
  // For an uncut image: after each row of placeholders but the last, and after
  // the last.
  std::string row_end = {};
  std::string last_row_end = {};
  // Around each view, and around each tile. `{row}`, `{column}` and `{tile}`
  // are replaced by the tile's row, column and row-major number, from 1.
  std::string view_before = {};
  std::string view_after = {};
  std::string tile_before = {};
  std::string tile_after = {};
  std::string tile_seam = {};      // between the tiles of a row
  std::string tile_row_end = {};   // after each row of tiles
  std::string tile_row_seam = {};  // between rows of tiles
  std::string view_seam = {};      // between view and tiles
  std::string cut_before = {};     // before an image that is cut
};

// The images of a model family: numbers, and the rule that reads them. Pixels
// unless said otherwise; 0 where the rule does not read a number.
struct ImageFamily {
  std::string name;
  ImageRule rule = ImageRule::kSmartResize;
  ResampleFilter filter = ResampleFilter::kBicubic;
  PatchLayout layout = PatchLayout::kCrops;

  uint32_t patch = 0;           // side of a patch
  uint32_t merge = 1;           // patches on a side that merge into one token
  uint32_t temporal_patch = 1;  // frames that a patch spans
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  uint32_t max_patches = 0;
  uint32_t longest_edge = 0;
  uint32_t tile = 0;  // side of a crop
  uint32_t min_tiles = 1;
  uint32_t max_tiles = 0;
  std::vector<TileShape> canvases = {};  // in order of preference
  std::array<uint8_t, 3> background = {0, 0, 0};
  // kPinpoints: an image is cut only if it is the only one of its sample;
  // others become one crop, as by kPadSquare.
  bool cut_alone = false;
  uint32_t min_crop = 0;  // shortest side of a pan-and-scan crop
  double min_ratio = 0;   // of sides; images of at least this ratio are panned
  // kTileGrid: each of a sample's n images has at most max_tiles / n tiles, and
  // at least min_tiles.
  bool share_tiles = false;
  // kLongestEdge: shrunk sides are rounded half to even, otherwise down.
  bool round_sides = false;

  // Tokens in addition to merged patches, as the processor counts them: one
  // after each row of tokens (a newline), and some for each image (start and
  // end). The tokens of an image are the texts marks.before and marks.after if
  // these are set. They are placeholders if not, and also if newlines are
  // placeholders in the same run.
  uint32_t tokens_a_row = 0;
  uint32_t tokens_an_image = 0;

  // The text around the placeholders. Without a placeholder the model is an
  // encoder whose images are not in any text.
  ImageMarks marks = {};
};

// All texts of the marks, in the order of the fields.
std::vector<const std::string*> GetTexts(const ImageMarks& marks);

// Whether marks other than placeholder, before and after are set: placeholders
// are then written crop by crop or row by row, else as one run.
bool MarksParts(const ImageMarks& marks);

// A number or text of a family that its rule cannot take. `key` is the field's
// name, with `[i]` and `.` for parts: "canvases[2].width", "marks.row_end".
struct FamilyFault {
  std::string key;
  std::string found;
  std::string wanted;
};

// The first fault of a family, in the order of its fields; nullopt if images of
// it can be planned.
std::optional<FamilyFault> FindFamilyFault(const ImageFamily& family);

// Whether a rule reads a number (a field of ImageFamily, such as "max_tiles").
// True for numbers that every rule reads, and for layout, filter and marks.
bool ReadsNumber(ImageRule rule, absl::string_view key);

// Whether every crop of the family is tile x tile pixels.
bool HasSquareCrops(const ImageFamily& family);

// The number of axes of a position id that is wanted instead of `axes`; "" if
// positions of the family's images can have so many axes (0 means 1).
std::string FindAxesFault(const ImageFamily& family, uint32_t axes);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_PLAN_IMAGE_FAMILY_H_
