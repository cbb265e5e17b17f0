#ifndef BALLAST_SERVER_COMMAND_INIT_OWN_FILES_H_
#define BALLAST_SERVER_COMMAND_INIT_OWN_FILES_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/recipe/recipe.h"

namespace ballast {

// A file next to the configuration that its owner completes.
struct OwnFile {
  std::string name;
  std::string text;
};

// What a record holds, shortened: lines of JSON, or the members of a tar's
// sample; "" of a line that is no JSON. Pure.
std::string ShowRecord(const RecipeRecord& record);

// The recipe of a source whose records are of no known form, of which `record`
// is the first (ShowRecord). It raises NotImplementedError until it is written.
// Pure.
OwnFile MakeRecipe(const std::string& source, const std::string& path,
                   bool is_tar, absl::string_view record);

// The recipe and the profile of a model without a profile, with the numbers
// that its files have. Pure.
struct OwnModel {
  OwnFile recipe;
  OwnFile profile;
  // Sentences: the numbers that no file had.
  std::vector<std::string> unsure;
};
OwnModel MakeModel(const std::string& type, const nlohmann::json& config,
                   const nlohmann::json& processor);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_OWN_FILES_H_
