#ifndef BALLAST_SERVER_COMMAND_INIT_FAMILY_CHOICE_H_
#define BALLAST_SERVER_COMMAND_INIT_FAMILY_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "server/image_plan/image_family.h"

namespace ballast {

// Tells a Hugging Face model's image family from its config.json and
// preprocessor_config.json, parsed objects that may be empty. All pure.

// The family's profile by config.json's model_type and, where one type has
// several, by what tells them apart. "": no family has this type.
std::string FamilyProfileOf(const nlohmann::json& config,
                            const nlohmann::json& processor);

// The model_types that it knows.
std::vector<std::string> FamilyModelTypes();

// A number of the checkpoint that is not the family's.
struct NumberDifference {
  std::string key;         // "preprocessor_config.json: patch_size"
  std::string found;       // as JSON
  std::string family_key;  // "patch"
  std::string wanted;      // the family's
};

// The numbers of the family's rule that the checkpoint's files state otherwise:
// with them, an image would become other crops than the profile's. Bounds of
// pixels are not among them: model.min_pixels and max_pixels may state those.
std::vector<NumberDifference> DifferentNumbers(const nlohmann::json& config,
                                               const nlohmann::json& processor,
                                               const ImageFamily& family);

// The placeholders of an image of the most common kinds that has most. Errors:
// as ModelImages::Create.
absl::StatusOr<uint64_t> MostPlaceholders(const std::string& profile);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_FAMILY_CHOICE_H_
