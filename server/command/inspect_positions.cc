#include "server/command/inspect_positions.h"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/json_lines.h"
#include "server/config/model_profile.h"
#include "server/config/profiles.h"
#include "server/text/positions.h"

namespace ballast {
namespace {

// True if `value` is an integer that fits in Integer.
template <typename Integer>
bool Holds(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <=
           uint64_t{std::numeric_limits<Integer>::max()};
  }
  if (!value.is_number_integer()) return false;
  return value.get<int64_t>() >= int64_t{std::numeric_limits<Integer>::min()};
}

absl::StatusOr<std::vector<int32_t>> ParseIds(const nlohmann::json& object) {
  const auto list = object.find("input_ids");
  if (list == object.end() || !list->is_array()) {
    return absl::InvalidArgumentError("`input_ids` is missing or not a list");
  }
  std::vector<int32_t> ids;
  ids.reserve(list->size());
  for (const nlohmann::json& id : *list) {
    if (!Holds<int32_t>(id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "`input_ids`[", ids.size(), "] is not a 32-bit integer"));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// No `image_grid_thw` means no images.
absl::StatusOr<std::vector<GridThw>> ParseGrids(const nlohmann::json& object) {
  std::vector<GridThw> grids;
  const auto list = object.find("image_grid_thw");
  if (list == object.end()) return grids;
  if (!list->is_array()) {
    return absl::InvalidArgumentError("`image_grid_thw` is not a list");
  }
  for (const nlohmann::json& grid : *list) {
    if (!grid.is_array() || grid.size() != 3 || !Holds<uint32_t>(grid[0]) ||
        !Holds<uint32_t>(grid[1]) || !Holds<uint32_t>(grid[2])) {
      return absl::InvalidArgumentError(
          absl::StrCat("`image_grid_thw`[", grids.size(),
                       "] is not [t, h, w] of three sizes in patches"));
    }
    grids.push_back({grid[0], grid[1], grid[2]});
  }
  return grids;
}

absl::StatusOr<nlohmann::ordered_json> Positions(const nlohmann::json& object,
                                                 const v1::Model& model) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(object));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<GridThw> grids,
                           ParseGrids(object));
  const size_t axes = model.position_axes();
  std::vector<int32_t> positions(axes * ids.size());
  BALLAST_RETURN_IF_ERROR(
      ComputePositions(ids, grids, model, absl::MakeSpan(positions)));
  auto lists = nlohmann::ordered_json::array();
  for (size_t axis = 0; axis < axes; ++axis) {
    const auto begin = positions.begin() + axis * ids.size();
    lists.push_back(std::vector<int32_t>(begin, begin + ids.size()));
  }
  return nlohmann::ordered_json{{"position_ids", lists}};
}

}  // namespace

absl::Status InspectPositions(const v1::Model& model, std::istream& in,
                              std::ostream& out) {
  return TransformJsonLines(in, out, [&](const nlohmann::json& object) {
    return Positions(object, model);
  });
}

void AddInspectPositions(CommandLine* line, Command* inspect) {
  auto profile = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "positions",
      R"(Prints the position ids of samples.
Reads lines {"input_ids": […], "image_grid_thw": [[t, h, w], …]} from standard
input and prints for each {"position_ids": [[…], […], […]]}.)",
      R"(  echo '{"input_ids": [7, 8, 9], "image_grid_thw": []}' |
    ballast-server inspect positions --model qwen2_5_vl)",
      [profile]() -> absl::Status {
        v1::Model model;
        model.set_profile(*profile);
        BALLAST_RETURN_IF_ERROR(ApplyModelProfile(&model));
        return InspectPositions(model, std::cin, std::cout);
      });
  command
      ->AddText("--model", profile.get(),
                "qwen2_vl, qwen2_5_vl, qwen3_vl or qwen3_5_vl")
      .OneOf(ProfileNames([](const v1::ModelProfile& profile) {
        return profile.has_token_ids();
      }))
      .Required()
      .TypeName("MODEL");
}

}  // namespace ballast
