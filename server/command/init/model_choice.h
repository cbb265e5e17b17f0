#ifndef BALLAST_SERVER_COMMAND_INIT_MODEL_CHOICE_H_
#define BALLAST_SERVER_COMMAND_INIT_MODEL_CHOICE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/command/init/data_tree.h"
#include "server/command/init/own_files.h"
#include "server/media/image_plan/image_family.h"

namespace ballast {

// What config.json and preprocessor_config.json of a Hugging Face model say of
// its profile: parsed objects that may be empty. All pure. In the place of the
// latter, processor_config.json of transformers 5, whose image_processor it is.

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
std::vector<NumberDifference> DifferentNumbers(
    const nlohmann::json& config, const nlohmann::json& processor,
    const std::string& processor_file, const ImageFamily& family);

// The placeholders of an image of the most common kinds that has most. Errors:
// as ModelImages::Create.
absl::StatusOr<uint64_t> MostPlaceholders(const std::string& profile);

// The section `model` of a configuration, and what follows from the model for
// other sections.
struct ModelChoice {
  // Key and value, as YAML, and a comment, in order.
  struct Line {
    std::string key;
    std::string value;
    std::string comment;
  };
  std::vector<Line> lines;
  // Tokens of the largest image, and of a clip of 30 s; 0: the model takes
  // none.
  uint64_t most_image_tokens = 0;
  uint64_t clip_tokens = 0;
  // config.json gives costs: balance.cost.model may name the folder.
  bool has_costs = false;
  // Files next to the configuration that the lines name.
  std::vector<OwnFile> files;
  std::vector<std::string> found;
  std::vector<std::string> unsure;
};

// Chooses the profile by config.json's model_type, and takes every number of
// preprocessor_config.json that differs from the profile's. For a model with
// images that has no profile, writes the files of one (MakeModel). Pure.
// Errors: INVALID_ARGUMENT (not JSON; a model_type without a profile and
// without images, tokenizer.json and chat template; a number of another type;
// for families other than Qwen's: numbers that make other crops than the
// profile's, no tokenizer.json, no known chat template in the model's files or
// the profile). `has_clips`: samples have audio, which decides where no file
// does.
absl::StatusOr<ModelChoice> ChooseModel(const SeenModel& seen,
                                        bool has_clips = false);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_MODEL_CHOICE_H_
