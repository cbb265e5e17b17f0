#ifndef BALLAST_SERVER_COMMAND_INIT_FAMILY_CHOICE_H_
#define BALLAST_SERVER_COMMAND_INIT_FAMILY_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "server/image_plan/image_family.h"

namespace ballast {

// What config.json and preprocessor_config.json of a Hugging Face model say of
// its profile: parsed objects that may be empty. All pure.

// The profile whose `checkpoints` (v1::ModelProfile) these files fit; of
// several the one with most values, then with most values of config.json. "":
// none.
std::string FindCheckpoint(const nlohmann::json& config,
                           const nlohmann::json& processor);

// The model_types of all checkpoints, in alphabetical order.
std::vector<std::string> KnownModelTypes();

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
