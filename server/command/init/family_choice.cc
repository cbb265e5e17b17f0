#include "server/command/init/family_choice.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/config.pb.h"
#include "server/config/model_images.h"
#include "server/config/model_profile.h"
#include "server/config/profiles.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using enum ImageRule;

// The value at a path of keys, or null.
Json At(const Json& json, std::initializer_list<const char*> keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return *at;
}

// The value at keys with `.` between, or null.
Json AtPath(const Json& json, absl::string_view path) {
  const Json* at = &json;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(std::string(key));
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return *at;
}

std::string TextAt(const Json& json, std::initializer_list<const char*> keys) {
  const Json found = At(json, keys);
  return found.is_string() ? found.get<std::string>() : "";
}

// Collects differences.
class Comparison {
 public:
  Comparison(const Json& config, const Json& processor)
      : config_(config), processor_(processor) {}

  // The first of these paths of preprocessor_config.json that there is.
  void Processor(
      std::initializer_list<std::initializer_list<const char*>> paths,
      const char* family_key, const Json& wanted) {
    for (const auto& path : paths) {
      if (Add("preprocessor_config.json", processor_, path, family_key,
              wanted)) {
        return;
      }
    }
  }
  void Config(std::initializer_list<const char*> path, const char* family_key,
              const Json& wanted) {
    Add("config.json", config_, path, family_key, wanted);
  }

  std::vector<NumberDifference> Take() { return std::move(found_); }

 private:
  // Returns whether the file has a number, or a list, at the path.
  bool Add(const char* file, const Json& json,
           std::initializer_list<const char*> path, const char* family_key,
           const Json& wanted) {
    Json found = At(json, path);
    if (!found.is_number() && !found.is_array()) return false;
    // Both sides of a square.
    if (found.is_array() && found.size() == 2 && found[0] == found[1] &&
        wanted.is_number()) {
      found = Json(found[0]);
    }
    if (found == wanted) return true;
    std::string key = absl::StrCat(file, ":");
    const char* before = " ";
    for (const char* part : path) {
      absl::StrAppend(&key, before, part);
      before = ".";
    }
    found_.push_back({key, found.dump(), family_key, wanted.dump()});
    return true;
  }

  const Json& config_;
  const Json& processor_;
  std::vector<NumberDifference> found_;
};

Json GetCanvases(const ImageFamily& family) {
  Json list = Json::array();
  for (const TileShape& canvas : family.canvases) {
    list.push_back({canvas.height, canvas.width});
  }
  return list;
}

// Numbers that only some rules read.
void CompareByRule(const ImageFamily& family, Comparison* compare) {
  switch (family.rule) {
    case kLongestEdge:
      compare->Processor({{"size", "longest_edge"}}, "longest_edge",
                         family.longest_edge);
      compare->Config({"spatial_merge_size"}, "merge", family.merge);
      break;
    case kLongestEdgeTiles:
      compare->Processor({{"size", "longest_edge"}}, "longest_edge",
                         family.longest_edge);
      compare->Processor({{"max_image_size", "longest_edge"}}, "tile",
                         family.tile);
      compare->Config({"scale_factor"}, "merge", family.merge);
      break;
    case kCenterCrop:
    case kPadSquare:
      compare->Processor({{"crop_size", "height"}, {"crop_size"}}, "tile",
                         family.tile);
      break;
    case kPinpoints:
      compare->Processor({{"size", "height"}, {"crop_size", "height"}}, "tile",
                         family.tile);
      compare->Processor({{"image_grid_pinpoints"}}, "canvases",
                         GetCanvases(family));
      break;
    case kFixedSize:
      compare->Processor({{"size", "height"}}, "tile", family.tile);
      break;
    case kTileGrid:
    case kBestFitTiles:
      compare->Processor({{"size", "height"}}, "tile", family.tile);
      compare->Processor({{"max_patches"}}, "max_tiles", family.max_tiles);
      break;
    case kSlices:
      compare->Processor({{"scale_resolution"}}, "tile", family.tile);
      compare->Processor({{"max_slice_nums"}}, "max_tiles", family.max_tiles);
      break;
    case kFillBudget:
      compare->Processor({{"max_soft_tokens"}}, "max_patches / merge^2",
                         family.max_patches / (family.merge * family.merge));
      compare->Processor({{"pooling_kernel_size"}}, "merge", family.merge);
      break;
    case kSmartResizeFrames:
      compare->Processor({{"temporal_patch_size"}}, "temporal_patch",
                         family.temporal_patch);
      compare->Processor({{"merge_size"}}, "merge", family.merge);
      break;
    default:
      compare->Processor({{"merge_size"}}, "merge", family.merge);
  }
}

}  // namespace

std::string FindCheckpoint(const Json& config, const Json& processor) {
  const std::string type = TextAt(config, {"model_type"});
  const std::string image_processor =
      TextAt(processor, {"image_processor_type"});
  const auto are_as_wanted = [](const auto& values, const Json& json) {
    return std::all_of(values.begin(), values.end(), [&](const auto& value) {
      return AtPath(json, value.key()) ==
             Json::parse(value.json(), nullptr, /*allow_exceptions=*/false);
    });
  };
  std::string best;
  std::pair<int, int> most = {-1, -1};
  for (const std::string& name : ProfileNames()) {
    for (const v1::ModelCheckpoint& one : FindProfile(name)->checkpoints()) {
      const bool is_known =
          type.empty()
              ? !one.image_processor().empty() &&
                    absl::StartsWith(image_processor, one.image_processor())
              : one.model_type() == type;
      if (!is_known || !are_as_wanted(one.config(), config) ||
          !are_as_wanted(one.preprocessor(), processor)) {
        continue;
      }
      const std::pair<int, int> values = {
          one.config_size() + one.preprocessor_size(), one.config_size()};
      if (values <= most) continue;
      most = values;
      best = name;
    }
  }
  return best;
}

std::vector<std::string> KnownModelTypes() {
  std::set<std::string> types;
  for (const std::string& name : ProfileNames()) {
    for (const v1::ModelCheckpoint& one : FindProfile(name)->checkpoints()) {
      if (!one.model_type().empty()) types.insert(one.model_type());
    }
  }
  return {types.begin(), types.end()};
}

std::vector<NumberDifference> DifferentNumbers(const Json& config,
                                               const Json& processor,
                                               const ImageFamily& family) {
  Comparison compare(config, processor);
  compare.Processor({{"patch_size", "height"}, {"patch_size"}}, "patch",
                    family.patch);
  compare.Config({"vision_config", "patch_size"}, "patch", family.patch);
  CompareByRule(family, &compare);
  return compare.Take();
}

absl::StatusOr<uint64_t> MostPlaceholders(const std::string& profile) {
  v1::Model model;
  model.set_profile(profile);
  BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
  BALLAST_ASSIGN_OR_RETURN(const ModelImages images,
                           ModelImages::Create(model));
  uint64_t most = 0;
  // Squares and long images, among them those that fill a grid of tiles.
  for (const uint32_t height : {448, 1344, 4096}) {
    for (const uint32_t width : {448, 1344, 4096}) {
      const std::vector<TileShape> side = {{height, width}};
      BALLAST_ASSIGN_OR_RETURN(const uint64_t placeholders,
                               images.Placeholders(side));
      most = std::max(most, placeholders);
    }
  }
  return most;
}

}  // namespace ballast
