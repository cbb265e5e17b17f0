#include "server/command/inspect_family.h"

#include <utility>
#include <vector>

#include "common/sha256.h"
#include "common/status_macros.h"
#include "server/command/patch_bytes.h"
#include "server/image/crop_maker.h"
#include "server/image/resample_name.h"
#include "server/image_plan/image_text.h"

namespace ballast {
namespace {

// Adds the text in place of the image, the first of its sample.
void AddText(const ImageFamily& family, const ImagePlan& plan,
             nlohmann::ordered_json& object) {
  nlohmann::ordered_json text = nlohmann::ordered_json::array();
  for (const ImageTextPiece& piece : ImageText(family, plan, /*image=*/0)) {
    if (piece.placeholders != 0) {
      text.push_back(piece.placeholders);
    } else {
      text.push_back(piece.text);
    }
  }
  object["text"] = std::move(text);
}

}  // namespace

absl::Status InspectFamily(const ImagePlanner& planner, ResampleLibrary library,
                           bool with_text, absl::string_view bytes,
                           ImageDecoder& decoder,
                           nlohmann::ordered_json& object) {
  const ImageFamily& family = planner.family();
  BALLAST_ASSIGN_OR_RETURN(const RgbImage image, decoder.Decode(bytes));
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan,
                           planner.Plan(image.height, image.width));
  BALLAST_ASSIGN_OR_RETURN(
      const std::vector<RgbImage> crops,
      MakeCrops(image, plan, {.filter = family.filter, .library = library}));
  object["width"] = image.width;
  object["height"] = image.height;
  const bool is_patches = family.layout != PatchLayout::kCrops;
  if (is_patches && crops.size() == 1 &&
      family.layout != PatchLayout::kStrips) {
    object["grid_thw"] = {1, crops[0].height / family.patch,
                          crops[0].width / family.patch};
  }
  if (plan.tile_rows != 0) {
    object["tile_grid"] = {plan.tile_rows, plan.tile_columns};
  }
  object["image_tokens"] = plan.tokens;
  if (with_text) AddText(family, plan, object);
  object["resample"] = ResampleName(library);
  object["rgb_sha256"] = Sha256Hex(image.pixels);
  if (is_patches) {
    const PatchBytes patches = ArrangePatches(crops, family);
    object["patches"] = {{"shape", patches.shape},
                         {"sha256", Sha256Hex(patches.values)}};
    return absl::OkStatus();
  }
  nlohmann::ordered_json hashes = nlohmann::ordered_json::array();
  for (const RgbImage& crop : crops) {
    hashes.push_back({crop.height, crop.width, Sha256Hex(crop.pixels)});
  }
  object["crops"] = std::move(hashes);
  return absl::OkStatus();
}

}  // namespace ballast
