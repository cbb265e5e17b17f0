#ifndef BALLAST_SERVER_JOB_VERIFY_RECIPES_H_
#define BALLAST_SERVER_JOB_VERIFY_RECIPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/config_loader.h"

namespace ballast {

// The outcome for one source: of its recipe, or of the model's for its
// images.
struct RecipeCheck {
  std::string source;
  bool of_images = false;
  uint64_t samples = 0;  // made again
};

// Cooks `samples` samples of each source with a recipe, spread over its index,
// twice more: in two processes, backwards and forwards. Likewise with
// model.recipe the plans and pixels of two epochs. Every index must be up to
// date. Errors: FAILED_PRECONDITION (a sample is another than the indexed one,
// or has other plans or pixels the second time, with its place); as OpenSource,
// OpenModelRecipe and OpenModelTokenizer.
absl::StatusOr<std::vector<RecipeCheck>> VerifyRecipes(
    const LoadedConfig& config, uint64_t samples);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_VERIFY_RECIPES_H_
