#ifndef BALLAST_SERVER_RECIPE_IMAGE_RECIPE_H_
#define BALLAST_SERVER_RECIPE_IMAGE_RECIPE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/helper_pool.h"
#include "common/mutex.h"
#include "server/media/image_plan/image_text.h"
#include "server/media/image_plan/tile_grid.h"
#include "server/recipe/recipe_program.h"

namespace ballast {

// A part of the names of recipes with `image_plan`.
inline constexpr char kPlansOfRecipe[] = "+plans-";

// Reads what a recipe gave as the plan of an image of height*width pixels: its
// crops as stages, one each, and what RecipePlan has. Counts nothing. Pure.
// Errors: a data fault, naming what it gave.
absl::StatusOr<ImagePlan> ParseRecipePlan(absl::string_view json,
                                          uint32_t height, uint32_t width);

// A plan's crops, as a recipe that only makes pixels is told of them.
std::string WritePlanOfFamily(const ImagePlan& plan);

// A model's recipe: its functions `image_plan` and `pixels` (RecipeProgram).
// Plans are kept in memory. Thread-safe.
class ImageRecipe {
 public:
  using Options = RecipeProgram::Options;

  // Blocks. Errors: as RecipeProgram::Open.
  static absl::StatusOr<std::shared_ptr<const ImageRecipe>> Open(
      const std::string& path, const Options& options);

  // Whether it has `image_plan`, whether that takes random numbers, and the
  // most placeholders that it then gives an image.
  bool has_plan() const { return has_plan_; }
  bool draws() const { return draws_; }
  uint64_t most_tokens() const { return most_tokens_; }
  // Whether it has `pixels`.
  bool has_pixels() const { return has_pixels_; }

  // The plans of images, as ParseRecipePlan reads them. A recipe that does not
  // draw is not told of `draw`. Blocks. Errors, of each image: a data fault (an
  // exception, with the recipe's file and line; another plan when asked again;
  // over the limits of time and memory; as ParseRecipePlan), UNAVAILABLE (it
  // takes too much time; a process was killed or cannot be started).
  std::vector<absl::StatusOr<ImagePlan>> Plan(
      absl::Span<const PlanFacts> images) const;

  // Writes the crops of an image, `rgb` decoded, to `crops`, which have the
  // plan's sizes, in its order. `plan` has been made of the same `facts`.
  // Blocks. Errors: a data fault (as Plan; another number, size or type of
  // crops than the plan's; another plan than `plan` when asked again);
  // UNAVAILABLE, as Plan.
  absl::Status MakePixels(const PlanFacts& facts, const ImagePlan& plan,
                          absl::Span<const uint8_t> rgb,
                          absl::Span<const absl::Span<uint8_t>> crops) const;

  // HASH+python-VERSION+...+plans-DIGEST+pixels-DIGEST: equal names give equal
  // plans and pixels. The digests are of what it makes of some images.
  const std::string& name() const { return program_->name(); }
  const std::string& text() const { return program_->text(); }
  void Restart() const;

 private:
  struct Waiting;

  explicit ImageRecipe(std::unique_ptr<RecipeProgram> program);

  static absl::Status AskFor(HelperPool::Worker* worker,
                             absl::Span<HelperPool::Job* const> jobs);
  // The key of a plan in memory.
  std::string MakeKey(const PlanFacts& facts) const;
  void Keep(const std::string& key, const ImagePlan& plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<RecipeProgram> program_;
  bool has_plan_ = false;
  bool draws_ = false;
  bool has_pixels_ = false;
  uint64_t most_tokens_ = 0;

  // Plans that were used last, and those before them, which are dropped when
  // the new ones take half of kMaxPlanBytes.
  using Plans = absl::flat_hash_map<std::string, ImagePlan>;
  mutable Mutex mutex_;
  mutable Plans plans_ ABSL_GUARDED_BY(mutex_);
  mutable Plans older_ ABSL_GUARDED_BY(mutex_);
  mutable size_t plan_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_RECIPE_IMAGE_RECIPE_H_
