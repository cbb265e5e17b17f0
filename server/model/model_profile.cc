#include "server/model/model_profile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "proto/image/job_images.h"
#include "server/model/image_family_config.h"
#include "server/model/profiles.h"

namespace ballast {

v1::Model::ImageForm GetImageForm(const ImageFamily& family) {
  switch (family.layout) {
    case PatchLayout::kCrops:
      return v1::Model::IMAGE_FORM_TILES;
    case PatchLayout::kMergeOrder:
      return v1::Model::IMAGE_FORM_MERGE_ORDER;
    case PatchLayout::kRasterPixels:
    case PatchLayout::kRasterBatch:
      return v1::Model::IMAGE_FORM_PADDED;
    case PatchLayout::kRasterOrder:
    case PatchLayout::kKimi:
    case PatchLayout::kStrips:
      break;
  }
  return v1::Model::IMAGE_FORM_RASTER;
}

v1::Job::CropShape GetCropShape(const v1::Model& model) {
  v1::Job::CropShape shape;
  shape.set_dummy_grid_h(model.merge());
  shape.set_dummy_grid_w(model.merge());
  const ImageFamily family = GetImageFamily(model);
  if (HasSquareCrops(family)) {
    const uint32_t side = family.tile / family.patch;  // in patches
    shape.set_tile(family.tile);
    shape.set_margin(family.tile - side * family.patch);
    shape.set_dummy_grid_h(side);
    shape.set_dummy_grid_w(side);
  }
  if (model.image_form() == v1::Model::IMAGE_FORM_PADDED) {
    shape.set_max_patches(family.max_patches);
  }
  return shape;
}

namespace {

// Processors that pad to a square pad with their mean, which the checkpoint
// sets.
void PadWithMean(absl::Span<const double> mean, ImageFamily* family) {
  const bool pads = family->cut_alone || family->rule == ImageRule::kPadSquare;
  if (!pads || mean.size() != 3) return;
  for (int c = 0; c < 3; ++c) {
    family->background[c] =
        static_cast<uint8_t>(std::clamp(mean[c], 0.0, 1.0) * 255);
  }
}

// Where neither the model nor its profile says anything, colours beneath
// transparent pixels stay, and the fingerprint says nothing.
void FillTransparency(const v1::ModelProfile& profile, v1::Model* model) {
  if (model->transparency() > v1::Model::TRANSPARENCY_MODEL) return;
  if (profile.transparency() <= v1::Model::TRANSPARENCY_DROP) return;
  model->set_transparency(profile.transparency());
}

void FillNorm(const v1::ModelProfile& profile, v1::Model* model) {
  if (model->mean().empty()) *model->mutable_mean() = profile.mean();
  if (model->std().empty()) *model->mutable_std() = profile.std();
  if (model->position_axes() == 0) {
    model->set_position_axes(std::max(profile.position_axes(), 1u));
  }
}

// Numbers of images where there are none: blocks and batches ask for some.
void FillNoImages(v1::Model* model) {
  v1::ImageFamily none = FindProfile("qwen2_vl")->images();
  none.set_name("none");
  none.clear_marks();
  *model->mutable_image_family() = none;
  for (int c = 0; c < 3; ++c) {
    if (model->mean_size() < 3) model->add_mean(0);
    if (model->std_size() < 3) model->add_std(1);
  }
}

void FillFamily(const v1::ModelProfile& profile, v1::Model* model) {
  if (!TakesImages(profile)) return FillNoImages(model);
  ImageFamily family = FamilyOfConfig(profile.images());
  if (model->min_pixels() != 0 && ReadsNumber(family.rule, "min_pixels")) {
    family.min_pixels = model->min_pixels();
  }
  if (model->max_pixels() != 0 && ReadsNumber(family.rule, "max_pixels")) {
    family.max_pixels = model->max_pixels();
  }
  PadWithMean(model->mean(), &family);
  *model->mutable_image_family() = ConfigOfFamily(family);
}

// The numbers of the model's image_family.
void FillNumbers(v1::Model* model) {
  const ImageFamily family = FamilyOfConfig(model->image_family());
  model->set_patch(family.patch);
  model->set_merge(family.merge);
  model->set_temporal_patch(family.temporal_patch);
  model->set_min_pixels(family.min_pixels);
  model->set_max_pixels(family.max_pixels);
  if (model->position_axes() == 0) model->set_position_axes(1);
  v1::TokenIds* ids = model->mutable_token_ids();
  if (!ids->has_image()) ids->set_image(-1);
  if (!ids->has_video()) ids->set_video(-1);
  if (!ids->has_vision_start()) ids->set_vision_start(-1);
  if (!ids->has_vision_end()) ids->set_vision_end(-1);
  if (!ids->has_im_start()) ids->set_im_start(-1);
  if (!ids->has_im_end()) ids->set_im_end(-1);
  if (!ids->has_end_of_text()) ids->set_end_of_text(-1);
  if (!ids->has_pad()) ids->set_pad(-1);
}

void FillBounds(const v1::ModelProfile& profile, v1::Model* model) {
  const v1::ImageFamily& images = profile.images();
  if (model->min_pixels() == 0) model->set_min_pixels(images.min_pixels());
  if (model->max_pixels() == 0) model->set_max_pixels(images.max_pixels());
}

// The numbers and ids of a profile with ids, which the model itself has.
void FillQwen(const v1::ModelProfile& profile, v1::Model* model) {
  const ImageFamily family = FamilyOfConfig(profile.images());
  if (model->patch() == 0) model->set_patch(family.patch);
  if (model->merge() == 0) model->set_merge(family.merge);
  if (model->temporal_patch() == 0) {
    model->set_temporal_patch(family.temporal_patch);
  }
  v1::TokenIds ids = profile.token_ids();
  ids.MergeFrom(model->token_ids());
  *model->mutable_token_ids() = ids;
}

}  // namespace

std::vector<std::string> MissingModelKeys(const v1::Model& model) {
  std::vector<std::string> missing;
  const auto check = [&missing](bool there, const char* key) {
    if (!there) missing.push_back(key);
  };
  // A family has its own numbers, and its tokenizer the ids.
  if (!HasImageKeys(model)) {
    check(!model.mean().empty(), "mean");
    check(!model.std().empty(), "std");
    return missing;
  }
  check(model.min_pixels() != 0, "min_pixels");
  check(model.max_pixels() != 0, "max_pixels");
  check(model.patch() != 0, "patch");
  check(model.merge() != 0, "merge");
  check(model.temporal_patch() != 0, "temporal_patch");
  check(!model.mean().empty(), "mean");
  check(!model.std().empty(), "std");
  const v1::TokenIds& ids = model.token_ids();
  check(ids.has_image(), "token_ids.image");
  check(ids.has_video(), "token_ids.video");
  check(ids.has_vision_start(), "token_ids.vision_start");
  check(ids.has_vision_end(), "token_ids.vision_end");
  check(ids.has_im_start(), "token_ids.im_start");
  check(ids.has_im_end(), "token_ids.im_end");
  check(ids.has_end_of_text(), "token_ids.end_of_text");
  check(ids.has_pad(), "token_ids.pad");
  check(model.position_axes() != 0, "position_axes");
  return missing;
}

bool HasOtherImages(const v1::Model& model) {
  const v1::ModelProfile* profile = GetProfile(model);
  return !HasImageKeys(model) && profile != nullptr && profile->has_token_ids();
}

absl::Status ApplyModelProfile(v1::Model* model) {
  const v1::ModelProfile* profile = GetProfile(*model);
  if (profile == nullptr && !model->profile().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.profile: found \"", model->profile(), "\"; wanted one of ",
        absl::StrJoin(ProfileNames(), ", ")));
  }
  const bool has_own_images = model->has_image_family();
  if (profile != nullptr && !HasOtherImages(*model)) {
    FillNorm(*profile, model);
    FillTransparency(*profile, model);
    if (!has_own_images && !profile->has_token_ids()) {
      FillFamily(*profile, model);
    }
  }
  if (model->has_image_family()) FillNumbers(model);
  if (profile != nullptr && profile->has_token_ids()) {
    // Also with other images without bounds: fingerprints have them.
    FillBounds(*profile, model);
    if (!has_own_images) FillQwen(*profile, model);
  }
  if (profile == nullptr) {
    const std::vector<std::string> missing = MissingModelKeys(*model);
    if (!missing.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model: without a profile these keys are required too: ",
                       absl::StrJoin(missing, ", ")));
    }
  }
  if (model->image_form() == v1::Model::IMAGE_FORM_UNSPECIFIED) {
    model->set_image_form(GetImageForm(GetImageFamily(*model)));
  }
  return absl::OkStatus();
}

uint32_t ImageTokens(const ImageGrid& grid, const v1::Model& model) {
  const uint64_t merged = uint64_t{model.merge()} * model.merge();
  return merged == 0 ? 0 : static_cast<uint32_t>(grid.patches() / merged);
}

}  // namespace ballast
