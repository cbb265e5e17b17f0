#include "server/config/model_profile.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/config/family_profile.h"
#include "server/image_plan/fit_rules.h"

namespace ballast {
namespace {

struct Profile {
  const char* name;
  uint64_t min_pixels;
  uint64_t max_pixels;
  uint32_t patch;
  double mean[3];
  double std[3];
  // image, video, vision_start, vision_end, im_start, im_end, end_of_text, pad
  int32_t ids[8];
};

constexpr uint32_t kMerge = 2;
constexpr uint32_t kTemporalPatch = 2;
constexpr uint32_t kPositionAxes = 3;

constexpr Profile kProfiles[] = {
    {"qwen2_vl",
     3136,
     12845056,
     14,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711},
     {151655, 151656, 151652, 151653, 151644, 151645, 151643, 151643}},
    {"qwen2_5_vl",
     3136,
     12845056,
     14,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711},
     {151655, 151656, 151652, 151653, 151644, 151645, 151643, 151643}},
    {"qwen3_vl",
     65536,
     16777216,
     16,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5},
     {151655, 151656, 151652, 151653, 151644, 151645, 151643, 151643}},
    {"qwen3_5_vl",
     65536,
     16777216,
     16,
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5},
     {248056, 248057, 248053, 248054, 248045, 248046, 248044, 248044}},
};

const Profile* FindProfile(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kProfiles), std::end(kProfiles),
                   [&name](const Profile& p) { return name == p.name; });
  return found == std::end(kProfiles) ? nullptr : found;
}

void FillTokenIds(const int32_t (&ids)[8], v1::TokenIds* token_ids) {
  if (!token_ids->has_image()) token_ids->set_image(ids[0]);
  if (!token_ids->has_video()) token_ids->set_video(ids[1]);
  if (!token_ids->has_vision_start()) token_ids->set_vision_start(ids[2]);
  if (!token_ids->has_vision_end()) token_ids->set_vision_end(ids[3]);
  if (!token_ids->has_im_start()) token_ids->set_im_start(ids[4]);
  if (!token_ids->has_im_end()) token_ids->set_im_end(ids[5]);
  if (!token_ids->has_end_of_text()) token_ids->set_end_of_text(ids[6]);
  if (!token_ids->has_pad()) token_ids->set_pad(ids[7]);
}

void Fill(const Profile& profile, v1::Model* model) {
  if (model->min_pixels() == 0) model->set_min_pixels(profile.min_pixels);
  if (model->max_pixels() == 0) model->set_max_pixels(profile.max_pixels);
  if (model->patch() == 0) model->set_patch(profile.patch);
  if (model->merge() == 0) model->set_merge(kMerge);
  if (model->temporal_patch() == 0) model->set_temporal_patch(kTemporalPatch);
  // Those of Qwen's models are not another family's.
  if (model->mean().empty() && !model->has_image_family()) {
    model->mutable_mean()->Assign(std::begin(profile.mean),
                                  std::end(profile.mean));
  }
  if (model->std().empty() && !model->has_image_family()) {
    model->mutable_std()->Assign(std::begin(profile.std),
                                 std::end(profile.std));
  }
  FillTokenIds(profile.ids, model->mutable_token_ids());
  if (model->position_axes() == 0) model->set_position_axes(kPositionAxes);
}

void FillForm(v1::Model* model) {
  if (model->image_form() != v1::Model::IMAGE_FORM_UNSPECIFIED) return;
  model->set_image_form(v1::Model::IMAGE_FORM_MERGE_ORDER);
}

}  // namespace

std::vector<std::string> ModelProfileNames() {
  std::vector<std::string> names;
  for (const Profile& profile : kProfiles) names.push_back(profile.name);
  return names;
}

std::vector<std::string> MissingModelKeys(const v1::Model& model) {
  std::vector<std::string> missing;
  const auto check = [&missing](bool there, const char* key) {
    if (!there) missing.push_back(key);
  };
  // A family has its own numbers, and its tokenizer the ids.
  if (model.has_image_family()) {
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

absl::Status ApplyModelProfile(v1::Model* model) {
  FillFamily(model);
  if (FindFamilyProfile(model->profile()) != nullptr) return absl::OkStatus();
  if (model->profile().empty()) {
    const std::vector<std::string> missing = MissingModelKeys(*model);
    if (missing.empty()) {
      FillForm(model);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("model: without a profile these keys are required too: ",
                     absl::StrJoin(missing, ", ")));
  }
  const Profile* profile = FindProfile(model->profile());
  if (profile == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.profile: found \"", model->profile(), "\"; wanted one of ",
        absl::StrJoin(ModelProfileNames(), ", ")));
  }
  Fill(*profile, model);
  FillForm(model);
  return absl::OkStatus();
}

absl::StatusOr<ImageGrid> ResizedGrid(uint32_t height, uint32_t width,
                                      const v1::Model& model) {
  // Up to this, height*width is exact in a double, as SmartResize needs it.
  constexpr uint32_t kMaxSide = uint32_t{1} << 26;
  if (height == 0 || width == 0 || height > kMaxSide || width > kMaxSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of height ", height, " and width ", width,
                     "; wanted sides of 1 to ", kMaxSide));
  }
  if (model.has_image_family()) {
    return absl::InternalError(
        absl::StrCat("the images of the family ", model.image_family().name(),
                     " are not sized by Qwen's rule; report this"));
  }
  if (model.patch() == 0 || model.merge() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.patch is ", model.patch(), " and model.merge is ",
                     model.merge(), "; wanted both above 0"));
  }
  const absl::StatusOr<TileShape> size =
      SmartResize(height, width, uint64_t{model.patch()} * model.merge(),
                  model.min_pixels(), model.max_pixels());
  if (!size.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        size.status().message(), " (model.min_pixels ", model.min_pixels(),
        ", max_pixels ", model.max_pixels(), ", patch ", model.patch(),
        ", merge ", model.merge(), ")"));
  }
  ImageGrid grid;
  grid.height = size->height;
  grid.width = size->width;
  grid.grid_h = grid.height / model.patch();
  grid.grid_w = grid.width / model.patch();
  return grid;
}

uint32_t ImageTokens(const ImageGrid& grid, const v1::Model& model) {
  const uint64_t merged = uint64_t{model.merge()} * model.merge();
  return merged == 0 ? 0 : static_cast<uint32_t>(grid.patches() / merged);
}

}  // namespace ballast
