#ifndef BALLAST_SERVER_MODEL_MODEL_IMAGES_H_
#define BALLAST_SERVER_MODEL_MODEL_IMAGES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "server/media/image_plan/image_planner.h"
#include "server/media/image_plan/image_text.h"
#include "server/media/rows_rule.h"
#include "server/media/video/video_plan.h"
#include "server/model/model_profile.h"
#include "server/recipe/image_recipe.h"

namespace ballast {

// What a model makes of images, from their sizes and, with a recipe, from their
// place in the data alone, and its rule for videos. Immutable, so that threads
// may share it.
class ModelImages {
 public:
  // `model` is a complete one, `recipe` the one that it names. Errors:
  // INVALID_ARGUMENT naming the number of its images that their rule cannot
  // take, or what is not possible with the recipe's plans.
  static absl::StatusOr<ModelImages> Create(
      const v1::Model& model,
      std::shared_ptr<const ImageRecipe> recipe = nullptr);

  // An image's share of its sample.
  struct Share {
    uint32_t crops = 0;
    uint32_t placeholders = 0;  // tokens that the image's features replace
    // Whether it may travel encoded: it is one crop, the whole image resized;
    // ranks resize along the width first, and the library of model.resample
    // does so, too (proto/image/job_images.h).
    bool may_travel_encoded = false;
  };

  // The plan of image `i` of a sample, by the recipe or the family's rule. Of
  // images without `draw` whose recipe draws: their text alone, with as many
  // placeholders as any epoch may give. Pure; with a recipe it blocks while
  // Python runs. Errors: INVALID_ARGUMENT (an image that cannot be resized; a
  // data fault by the recipe); UNAVAILABLE, as ImageRecipe::Plan.
  absl::StatusOr<ImagePlan> Plan(const SampleImages& images, size_t i) const;

  // Has the recipe plan all images of these samples at once, so that Plan finds
  // them. Their errors are Plan's.
  void PlanAhead(absl::Span<const SampleImages> samples) const;

  // Appends the grids of the crops of image `i` to `grids`. Errors: as Plan;
  // INVALID_ARGUMENT (a canvas that is larger than any image).
  absl::StatusOr<Share> Add(const SampleImages& images, size_t i,
                            std::vector<ImageGrid>* grids) const;

  // Placeholders of all images of a sample. Errors: as Add.
  absl::StatusOr<uint64_t> Placeholders(const SampleImages& images) const;

  const ImageFamily& family() const { return planner_.family(); }
  // Null without a recipe.
  const ImageRecipe* recipe() const { return recipe_.get(); }
  bool has_pixels() const {
    return recipe_ != nullptr && recipe_->has_pixels();
  }
  // How the model samples videos; nullptr if it takes none.
  const VideoModel* video() const {
    return video_.has_value() ? &*video_ : nullptr;
  }
  // What the model makes of media that travel as rows, such as audio; nullptr
  // if it takes none.
  const RowsRule* rows() const { return rows_; }
  // Whether the model itself asks for an image's sides (rule `pinpoints`).
  bool wants_sides() const { return wants_sides_; }

 private:
  ModelImages(const v1::Model& model, ImagePlanner planner);

  bool has_plan() const { return recipe_ != nullptr && recipe_->has_plan(); }
  // Checks and counts a plan of the recipe.
  absl::Status Finish(bool draws, ImagePlan* plan) const;
  absl::Status CheckCrop(const PlanStage& stage) const;

  v1::Model::Resample resample_;
  ImagePlanner planner_;
  uint32_t position_axes_;
  bool in_merge_order_;
  v1::Job::CropShape shape_;
  std::shared_ptr<const ImageRecipe> recipe_;
  std::optional<VideoModel> video_;
  const RowsRule* rows_ = nullptr;
  bool wants_sides_ = false;
};

// The images of a sample, as their plans see them: the only way from a job's
// order to random numbers. `source` is a number of config.sources; `config` and
// `sides` outlive the result.
SampleImages GetSampleImages(const v1::Config& config, uint32_t source,
                             uint64_t ordinal, uint64_t epoch,
                             absl::Span<const ImageSize> sides);

// Whether a crop is the whole image, resized to exactly the crop's size: the
// plans that can be decoded and resized in one pass.
bool IsOneResize(const ImagePlan& plan, uint32_t height, uint32_t width);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_MODEL_IMAGES_H_
