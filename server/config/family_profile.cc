#include "server/config/family_profile.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/types/span.h"
#include "server/config/crop_shape.h"
#include "server/config/image_family_config.h"
#include "server/image_plan/family_check.h"
#include "server/image_plan/image_family.h"

namespace ballast {
namespace {

constexpr PixelNorm kClip = {{0.48145466, 0.4578275, 0.40821073},
                             {0.26862954, 0.26130258, 0.27577711}};
constexpr PixelNorm kHalves = {{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
constexpr PixelNorm kImageNet = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
// Gemma 4's tower normalises by itself.
constexpr PixelNorm kNone = {{0, 0, 0}, {1, 1, 1}};

// Those of the released checkpoints, by these sources.
//
// - InternVL: ImageNet's, which convert_internvl_weights_to_hf.py of
//   transformers sets. Its class, that of GOT-OCR 2, has CLIP's.
// - LLaVA-OneVision: 0.5. convert_llava_onevision_weights_to_hf.py takes the
//   preprocessor_config.json of siglip-so400m-patch14-384. The class has
//   CLIP's. The processor pads with the mean.
// - ERNIE: the class's defaults, which its conversion script takes.
// - Gemma 3, SmolVLM (0.5) and Mistral 3 (CLIP's): their
//   preprocessor_config.json; the classes have the same. Idefics 3 and Pixtral
//   are of the classes of SmolVLM and Mistral 3.
// - Gemma 4: none, since its class sets do_normalize to false.
// - LLaVA-Video: those of LLaVA-OneVision, of whose checkpoint and tower it is
//   trained.
// - GLM, HunyuanVL, Kimi, Llama 4, MiniCPM-V: the defaults of their classes,
//   which serve these models alone.
//
// In alphabetical order.
constexpr FamilyProfile kProfiles[] = {
    {"ernie4_5_vl", kClip, 3, "</s>"},
    {"gemma3", kHalves, 1, "<eos>"},
    {"gemma3_pan_and_scan", kHalves, 1, "<eos>"},
    {"gemma4", kNone, 1, "<eos>"},
    {"glm46v", kClip, 3, "<|endoftext|>"},
    {"glm4v", kClip, 3, "<|endoftext|>"},
    {"hunyuan_vl", kClip, 4, "<|endoftext|>"},
    {"idefics3", kHalves, 1, "<|end_of_text|>"},
    {"internvl3", kImageNet, 1, "<|endoftext|>"},
    {"kimi_k25", kHalves, 1, "[EOS]"},
    {"llama4", kHalves, 1, "<|end_of_text|>"},
    {"llava1_5", kClip, 1, "</s>"},
    {"llava1_5_pad", kClip, 1, "</s>"},
    {"llava_next", kClip, 1, "</s>"},
    {"llava_onevision", kHalves, 1, "<|endoftext|>"},
    {"llava_video", kHalves, 1, "<|endoftext|>", "llava_onevision"},
    {"minicpmv4_6", kHalves, 1, "<|endoftext|>"},
    {"pixtral", kClip, 1, "</s>"},
    {"smolvlm", kHalves, 1, "<|endoftext|>"},
};

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

void FillProfile(const FamilyProfile& profile, v1::Model* model) {
  if (model->mean().empty()) {
    model->mutable_mean()->Assign(std::begin(profile.norm.mean),
                                  std::end(profile.norm.mean));
  }
  if (!model->has_image_family()) {
    ImageFamily family = *FindImageFamily(profile.images());
    if (model->min_pixels() != 0 && ReadsNumber(family.rule, "min_pixels")) {
      family.min_pixels = model->min_pixels();
    }
    if (model->max_pixels() != 0 && ReadsNumber(family.rule, "max_pixels")) {
      family.max_pixels = model->max_pixels();
    }
    PadWithMean(model->mean(), &family);
    *model->mutable_image_family() = ConfigOfFamily(family);
  }
  if (model->std().empty()) {
    model->mutable_std()->Assign(std::begin(profile.norm.std),
                                 std::end(profile.norm.std));
  }
  if (model->position_axes() == 0) {
    model->set_position_axes(profile.position_axes);
  }
}

void LeaveToTokenizer(v1::TokenIds* ids) {
  if (!ids->has_image()) ids->set_image(-1);
  if (!ids->has_video()) ids->set_video(-1);
  if (!ids->has_vision_start()) ids->set_vision_start(-1);
  if (!ids->has_vision_end()) ids->set_vision_end(-1);
  if (!ids->has_im_start()) ids->set_im_start(-1);
  if (!ids->has_im_end()) ids->set_im_end(-1);
  if (!ids->has_end_of_text()) ids->set_end_of_text(-1);
  if (!ids->has_pad()) ids->set_pad(-1);
}

}  // namespace

const FamilyProfile* FindFamilyProfile(absl::string_view name) {
  const auto* found =
      std::find_if(std::begin(kProfiles), std::end(kProfiles),
                   [name](const FamilyProfile& p) { return p.name == name; });
  return found == std::end(kProfiles) ? nullptr : found;
}

std::vector<std::string> FamilyProfileNames() {
  std::vector<std::string> names;
  for (const FamilyProfile& profile : kProfiles) {
    names.emplace_back(profile.name);
  }
  return names;
}

void FillFamily(v1::Model* model) {
  if (const FamilyProfile* profile = FindFamilyProfile(model->profile())) {
    FillProfile(*profile, model);
  }
  if (!model->has_image_family()) return;
  const ImageFamily family = FamilyOfConfig(model->image_family());
  model->set_patch(family.patch);
  model->set_merge(family.merge);
  model->set_temporal_patch(family.temporal_patch);
  model->set_min_pixels(family.min_pixels);
  model->set_max_pixels(family.max_pixels);
  // Qwen's profile does not know the family's positions.
  if (model->position_axes() == 0) model->set_position_axes(1);
  if (model->image_form() == v1::Model::IMAGE_FORM_UNSPECIFIED) {
    model->set_image_form(ImageFormOf(family));
  }
  LeaveToTokenizer(model->mutable_token_ids());
}

}  // namespace ballast
