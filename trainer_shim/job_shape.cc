#include "trainer_shim/job_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "proto/image/model_resampling.h"
#include "proto/schedule/module.h"

namespace ballast {
namespace {

// Far above any model. They keep sums of sizes inside 64 bits.
constexpr uint64_t kMaxAlign = 1 << 20;
constexpr uint64_t kMaxRowLength = uint64_t{1} << 30;

absl::Status CheckRange(absl::string_view field, uint64_t value, uint64_t least,
                        uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "job: ", field, " is ", value, ", wanted ", least, " to ", most));
}

// An EmbeddingPlan takes merge * merge patches for a row. Other families have
// newlines among an image's tokens, or drop padding.
absl::Status CheckSplit(const v1::Model& model) {
  if (model.has_video()) {
    return absl::InvalidArgumentError(
        "job: balance.placement is split with a model of videos (model.video), "
        "whose embeddings do not move yet: set it to paired");
  }
  if (!model.has_image_family()) return absl::OkStatus();
  if (model.image_family().tokens_a_row() == 0 &&
      model.image_family().rule() != v1::ImageFamily::RULE_PINPOINTS) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "job: balance.placement is split with images of ",
      model.image_family().name(),
      ", whose embeddings are not counted by patches: set it to paired"));
}

}  // namespace

ModuleLayout LayoutOf(const v1::Job::ModuleSize& module) {
  return {std::max(module.tp(), 1u), std::max(module.pp(), 1u),
          std::max(module.cp(), 1u)};
}

absl::StatusOr<JobShape> ShapeOf(const v1::Job& job, const v1::Role& role,
                                 const TrainerPlace& place) {
  const v1::Job::ModuleSize* module = nullptr;
  const v1::Job::ModuleSize* trained = nullptr;
  for (const v1::Job::ModuleSize& entry : job.modules()) {
    if (entry.module() == role.module()) module = &entry;
    if (IsLanguage(entry.module())) trained = &entry;
  }
  if (module == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "module ", ModuleName(role.module()), " is not configured"));
  }
  if (role.dp_rank() >= module->dp()) {
    return absl::InvalidArgumentError(absl::StrCat(
        ModuleName(role.module()), " has ", module->dp(),
        " data-parallel ranks; rank ", role.dp_rank(), " was asked for"));
  }
  const ModuleLayout layout = LayoutOf(*module);
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckPlace(place, layout), ModuleName(role.module())));
  const v1::Model& model = job.model();
  BALLAST_RETURN_IF_ERROR(CheckRange("align", module->align(), 1, kMaxAlign));
  if (trained == nullptr) trained = module;
  BALLAST_RETURN_IF_ERROR(
      CheckRange("align of language", trained->align(), 1, kMaxAlign));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("row_length", job.row_length(), 0, kMaxRowLength));
  if (job.row_length() % trained->align() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: row_length is ", job.row_length(),
                     ", wanted a multiple of align, ", trained->align()));
  }
  BALLAST_RETURN_IF_ERROR(
      CheckRange("length of model.mean", model.mean_size(), 3, 3));
  BALLAST_RETURN_IF_ERROR(
      CheckRange("length of model.std", model.std_size(), 3, 3));
  if (model.position_axes() != 1 && model.position_axes() != 3 &&
      model.position_axes() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: model.position_axes is ", model.position_axes(),
                     ", wanted 1, 3 or 4"));
  }

  JobShape shape;
  BALLAST_ASSIGN_OR_RETURN(shape.delivery, RuleOf(job, role));
  shape.dp = module->dp();
  shape.align = module->align();
  shape.padding = {trained->align(), job.padded(), job.row_length()};
  shape.block = GeometryOf(job);
  BALLAST_ASSIGN_OR_RETURN(shape.crops, CropFormOf(job));
  shape.merge = model.merge();
  shape.encoded_images = model.decode() == v1::Model::DECODE_DEVICE;
  shape.resampling = ResamplingOf(model);
  for (int c = 0; c < 3; ++c) {
    if (!(model.std(c) > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "job: model.std[", c, "] is ", model.std(c), ", wanted above 0"));
    }
    shape.mean[c] = model.mean(c);
    shape.std[c] = model.std(c);
  }
  shape.pad_id = model.token_ids().pad();
  shape.place = place;
  shape.layout = layout;
  shape.fields = FieldsOf(role.module(), place, layout);
  shape.tensors = MakeTensorTable();
  shape.split_placement = job.placement() == v1::Balance::PLACEMENT_SPLIT;
  if (shape.split_placement) BALLAST_RETURN_IF_ERROR(CheckSplit(model));
  // Media are not sliced: every context rank of an encoder has all of them.
  if (IsLanguage(role.module())) {
    shape.context = {layout.cp, place.cp_rank};
  }
  BALLAST_RETURN_IF_ERROR(CheckContextAlign(shape.context.size, shape.align));
  return shape;
}

}  // namespace ballast
