#include "server/model/model_images.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "proto/schedule/split.h"
#include "server/model/model_rows.h"
#include "server/model/model_videos.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/sample/image_header.h"

namespace ballast {
namespace {

absl::Status CheckCanvases(const ImagePlan& plan) {
  for (const PlanStage& stage : plan.stages) {
    if (uint64_t{stage.height} * stage.width <= kMaxImagePixels) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "would be resized or padded to ", stage.width, "x", stage.height,
        " pixels; at most ", kMaxImagePixels, " are made"));
  }
  if (plan.placeholders > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "would take ", plan.placeholders, " tokens; wanted at most 2^32-1"));
  }
  return absl::OkStatus();
}

}  // namespace

ModelImages::ModelImages(const v1::Model& model, ImagePlanner planner)
    : resample_(model.resample()),
      planner_(std::move(planner)),
      position_axes_(model.position_axes()),
      in_merge_order_(model.image_form() == v1::Model::IMAGE_FORM_MERGE_ORDER),
      shape_(GetCropShape(model)) {}

absl::StatusOr<ModelImages> ModelImages::Create(
    const v1::Model& model, std::shared_ptr<const ImageRecipe> recipe) {
  BALLAST_ASSIGN_OR_RETURN(ImagePlanner planner,
                           ImagePlanner::Create(GetImageFamily(model)));
  ModelImages images(model, std::move(planner));
  images.video_ = GetVideoModel(model);
  images.rows_ = GetRowsRule(model);
  images.wants_sides_ = images.family().rule == ImageRule::kPinpoints;
  images.recipe_ = std::move(recipe);
  if (model.recipe().empty() != (images.recipe_ == nullptr)) {
    return absl::InternalError(
        "model.recipe: it has not been opened, and nothing else may plan its "
        "images");
  }
  if (!images.has_plan()) return images;
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.recipe: its image_plan with the family ",
                     images.family().name, ", ", why));
  };
  if (images.wants_sides_) {
    return refuse(
        "whose model unpads tiles by the image's sides; wanted a profile of "
        "another rule than pinpoints");
  }
  if (images.position_axes_ > 3) {
    return refuse(
        "whose positions have 4 axes; wanted a model with 1 or 3 axes");
  }
  if (images.recipe_->draws() && MarksParts(images.family().marks)) {
    return refuse(
        "takes rng, and the family writes marks of views or tiles, whose text "
        "would change by epoch and not be in the index; wanted "
        "image_plan(facts)");
  }
  return images;
}

absl::StatusOr<ImagePlan> ModelImages::Plan(const SampleImages& images,
                                            size_t i) const {
  const PlanFacts facts = images.Get(i);
  if (!has_plan()) {
    return planner_.Plan(facts.height, facts.width, facts.images);
  }
  absl::StatusOr<ImagePlan> plan = std::move(recipe_->Plan({&facts, 1})[0]);
  if (!plan.ok()) return plan.status();
  BALLAST_RETURN_IF_ERROR(Finish(recipe_->draws(), &*plan));
  if (recipe_->draws() && !images.draw.has_value()) {
    // It may be another one in each epoch.
    plan->placeholders = plan->tokens = recipe_->most_tokens();
  }
  return plan;
}

void ModelImages::PlanAhead(absl::Span<const SampleImages> samples) const {
  if (!has_plan()) return;
  std::vector<PlanFacts> facts;
  for (const SampleImages& sample : samples) {
    for (size_t i = 0; i < sample.size(); ++i) facts.push_back(sample.Get(i));
  }
  static_cast<void>(recipe_->Plan(facts));
}

absl::Status ModelImages::CheckCrop(const PlanStage& stage) const {
  const ImageFamily& of = family();
  const auto fault = [&](absl::string_view wanted) {
    return DataFaultError(absl::StrCat(
        "the recipe: image_plan gave a crop of height ", stage.crop.height,
        " and width ", stage.crop.width, "; wanted ", wanted));
  };
  if (shape_.tile() != 0) {
    if (stage.crop.height == of.tile && stage.crop.width == of.tile) {
      return absl::OkStatus();
    }
    return fault(absl::StrCat("the tile of the family ", of.name, ", ", of.tile,
                              "x", of.tile,
                              ", or a profile with a rule whose crops differ"));
  }
  const uint32_t multiple =
      of.patch * (in_merge_order_ || position_axes_ > 1 ? of.merge : 1);
  if (stage.crop.height % multiple != 0 || stage.crop.width % multiple != 0) {
    return fault(absl::StrCat("multiples of ", multiple, " (patch ", of.patch,
                              ", merge ", of.merge, ")"));
  }
  const uint64_t patches =
      uint64_t{stage.crop.height / of.patch} * (stage.crop.width / of.patch);
  if (shape_.max_patches() != 0 && patches > shape_.max_patches()) {
    return fault(absl::StrCat("at most ", shape_.max_patches(),
                              " patches (max_patches)"));
  }
  return absl::OkStatus();
}

absl::Status ModelImages::Finish(bool draws, ImagePlan* plan) const {
  const ImageFamily& of = family();
  uint64_t merged = 0;
  for (const PlanStage& stage : plan->stages) {
    BALLAST_RETURN_IF_ERROR(CheckCrop(stage));
    const uint64_t rows = stage.crop.height / of.patch;
    const uint64_t columns = stage.crop.width / of.patch;
    plan->patches += rows * columns;
    merged += (rows / of.merge) * (columns / of.merge);
  }
  plan->crops = static_cast<uint32_t>(plan->stages.size());
  plan->placeholders = plan->tokens = plan->recipe->tokens.value_or(merged);
  const auto fault = [&](auto... found_and_wanted) {
    return DataFaultError(
        absl::StrCat("the recipe: image_plan gave ", found_and_wanted...));
  };
  if (position_axes_ > 1 && (plan->crops != 1 || plan->tokens != merged ||
                             plan->recipe->text.size() > 3)) {
    return fault(plan->crops, " crops and ", plan->tokens,
                 " tokens; wanted, with ", position_axes_,
                 " axes of positions, one crop and its ", merged,
                 " merged patches in one run");
  }
  if (plan->tokens == 0) return fault("crops without a token; wanted tokens=N");
  if (draws && !plan->recipe->text.empty()) {
    return fault(
        "text=, and it takes rng: the index holds the lengths of texts; wanted "
        "tokens= alone, or plan(facts)");
  }
  if (draws && plan->tokens > recipe_->most_tokens()) {
    return fault(plan->tokens, " tokens; wanted at most most_tokens=",
                 recipe_->most_tokens());
  }
  if (plan->recipe->text.empty() && MarksParts(of.marks)) {
    return fault("no text=; wanted it, since the family ", of.name,
                 " writes marks of views or tiles");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelImages::Share> ModelImages::Add(
    const SampleImages& images, size_t i, std::vector<ImageGrid>* grids) const {
  BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, Plan(images, i));
  BALLAST_RETURN_IF_ERROR(CheckCanvases(plan));
  const uint32_t patch = family().patch;
  for (const PlanStage& stage : plan.stages) {
    const ImageGrid grid = {stage.crop.height, stage.crop.width,
                            stage.crop.height / patch,
                            stage.crop.width / patch};
    grids->insert(grids->end(), stage.rows * stage.columns, grid);
  }
  const ImageSize& side = images.sides[i];
  const bool may_travel_encoded =
      plan.crops == 1 && !has_pixels() &&
      (!has_plan() || IsOneResize(plan, side.height, side.width)) &&
      !IsResizedAlongYFirst(GetLibrary(resample_), side.width, side.height,
                            grids->back().width, grids->back().height);
  return Share{plan.crops, static_cast<uint32_t>(plan.placeholders),
               may_travel_encoded};
}

absl::StatusOr<uint64_t> ModelImages::Placeholders(
    const SampleImages& images) const {
  uint64_t total = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, Plan(images, i));
    BALLAST_RETURN_IF_ERROR(CheckCanvases(plan));
    total += plan.placeholders;
  }
  return total;
}

SampleImages GetSampleImages(const v1::Config& config, uint32_t source,
                             uint64_t ordinal, uint64_t epoch,
                             absl::Span<const ImageSize> sides) {
  SampleImages images(sides);
  images.source = config.sources(source).name();
  images.split = SplitName(config.sources(source).split());
  images.draw = ImageDraw{config.order().seed(), epoch, ordinal};
  return images;
}

bool IsOneResize(const ImagePlan& plan, uint32_t height, uint32_t width) {
  if (plan.stages.size() != 1) return false;
  const PlanStage& stage = plan.stages[0];
  const PixelRect canvas = {0, 0, stage.height, stage.width};
  return stage.source == PlanStage::kDecodedImage && stage.rows == 1 &&
         stage.columns == 1 && stage.from == PixelRect{0, 0, height, width} &&
         stage.place == canvas && stage.crop == canvas;
}

}  // namespace ballast
