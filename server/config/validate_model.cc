#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "proto/image/job_images.h"
#include "server/config/config_validate.h"
#include "server/config/topology.h"
#include "server/files/path_pattern.h"
#include "server/media/image_plan/image_family.h"
#include "server/model/image_family_config.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"

// Checks of a model's image family against its other settings.

namespace ballast {
namespace {

// Numbers of a model with a family that has its own.
void CheckFamilyNumbers(const v1::Model& model, KeyReport* report) {
  if (HasImageKeys(model)) return;
  const bool is_own = report->Has("model.image_family");
  const ImageFamily family = GetImageFamily(model);
  const auto refuse = [&](const char* name, absl::string_view why) {
    const std::string key = ChildKey("model", name);
    if (!report->Has(key) || report->IsFaulty(key)) return;
    report->AddFault(
        key, absl::StrCat("found it with the family ", family.name, ", ", why));
  };
  for (const char* name : {"patch", "merge", "temporal_patch"}) {
    refuse(name,
           "which has its own; wanted it omitted, or within "
           "model.image_family");
  }
  for (const char* name : {"min_pixels", "max_pixels"}) {
    if (is_own) {
      refuse(name, "which has its own; wanted it within model.image_family");
    } else if (!ReadsNumber(family.rule, name)) {
      refuse(name, "whose rule does not read it; wanted it omitted");
    }
  }
}

void CheckAxes(const v1::Model& model, KeyReport* report) {
  constexpr char kKey[] = "model.position_axes";
  if (report->IsFaulty(kKey)) return;
  const std::string wanted =
      FindAxesFault(GetImageFamily(model), model.position_axes());
  if (wanted.empty()) return;
  report->AddFault(report->Has(kKey) ? kKey : "model.image_family",
                   absl::StrCat("found ", model.position_axes(),
                                " axes of positions; wanted ", wanted));
}

void CheckForm(const v1::Model& model, KeyReport* report) {
  constexpr char kKey[] = "model.image_form";
  if (report->IsFaulty(kKey)) return;
  const ImageFamily family = GetImageFamily(model);
  if (model.image_form() == v1::Model::IMAGE_FORM_PADDED &&
      (HasSquareCrops(family) || family.max_patches == 0)) {
    report->AddFault(kKey,
                     "found padded; wanted a form other than it, since no "
                     "max_patches bounds the patches of a crop");
  }
  if (model.image_form() == v1::Model::IMAGE_FORM_MERGE_ORDER &&
      HasSquareCrops(family) &&
      family.tile / family.patch % family.merge != 0) {
    report->AddFault(
        kKey, absl::StrCat("found merge_order; wanted a form other than it, "
                           "since crops of ",
                           family.tile / family.patch,
                           " patches a side are no multiples of merge ",
                           family.merge));
  }
}

// Whether the family makes of an image one crop, the whole image resized once:
// such images may travel encoded.
bool IsResizedOnce(const ImageFamily& family) {
  switch (family.rule) {
    case ImageRule::kSmartResize:
    case ImageRule::kSmartResizeFrames:
    case ImageRule::kFillBudget:
    case ImageRule::kLongestEdge:
      return true;
    case ImageRule::kFixedSize:
      return family.max_tiles <= 1;
    default:
      return false;
  }
}

void CheckDevice(const v1::Model& model, KeyReport* report) {
  if (model.decode() != v1::Model::DECODE_DEVICE ||
      report->IsFaulty("model.decode")) {
    return;
  }
  const ImageFamily family = GetImageFamily(model);
  if (IsResizedOnce(family)) return;
  report->AddFault(
      "model.decode",
      absl::StrCat("found device with the family ", family.name,
                   ", whose images are cut, padded or resized more than once; "
                   "wanted host"));
}

}  // namespace

void ValidateModelFamily(const v1::Model& model, KeyReport* report) {
  if (report->HasFaultWithin("model.image_family")) return;
  CheckFamilyNumbers(model, report);
  CheckAxes(model, report);
  CheckForm(model, report);
  CheckDevice(model, report);
}

namespace {

// A profile of Qwen's knows nothing of another family's pixels.
void CheckOwnNorm(KeyReport* report) {
  if (!report->Has("model.image_family")) return;
  for (const char* name : {"mean", "std"}) {
    const std::string key = ChildKey("model", name);
    if (report->Has(key) || report->IsFaulty(key)) continue;
    report->AddMissing(
        key,
        absl::StrCat("three numbers, for R, G and B in [0, 1], with a "
                     "family of one's own: image_",
                     name, " of its checkpoint's preprocessor_config.json; ",
                     name == std::string("mean") ? "[0, 0, 0]" : "[1, 1, 1]",
                     " where the model normalises by itself"));
  }
}

// Returns whether the profile is known or empty.
bool CheckProfile(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model.profile")) return false;
  const v1::ModelProfile* profile = GetProfile(model);
  if (profile == nullptr && model.profile().empty()) {
    for (const std::string& name : MissingModelKeys(model)) {
      const std::string key = ChildKey("model", name);
      if (!report->Has(key) && !report->IsFaulty(key)) {
        report->AddMissing(key, "it where there is no profile");
      }
    }
    return true;
  }
  const bool is_encoder = profile != nullptr && IsEncoder(*profile);
  if (profile != nullptr && !is_encoder) {
    if (HasOtherImages(model)) CheckOwnNorm(report);
    return true;
  }
  report->AddFault(
      "model.profile",
      absl::StrCat(
          "found ", Shown(model.profile()),
          is_encoder ? ", an encoder without text" : "",
          "; wanted a model of docs/families.md, such as qwen2_5_vl or "
          "internvl3, the path of a file that ends in .textproto, or \"\""));
  return false;
}

void CheckTemplate(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model.chat_template")) return;
  const std::string& name = model.chat_template();
  const bool is_custom = name == "custom";
  const bool is_checkpoint = name == "checkpoint";
  if (is_checkpoint && model.tokenizer() == "bytes") {
    report->AddFault("model.chat_template",
                     "found checkpoint with tokenizer: bytes; wanted the "
                     "path of the checkpoint's tokenizer, in whose folder its "
                     "template is");
  }
  if (!is_checkpoint && report->Has("model.template_date")) {
    report->AddFault("model.template_date",
                     absl::StrCat("found it with chat_template ", name,
                                  "; wanted chat_template: checkpoint"));
  }
  if (!is_checkpoint && model.reasoning() > v1::Model::REASONING_TEMPLATE) {
    report->AddFault("model.reasoning",
                     absl::StrCat("found it with chat_template ", name,
                                  ", which writes reasoning as the text has "
                                  "it; wanted chat_template: checkpoint"));
  }
  absl::CivilDay day;
  if (!model.template_date().empty() &&
      (!absl::ParseCivilTime(model.template_date(), &day) ||
       absl::FormatCivilTime(day) != model.template_date())) {
    report->AddFault("model.template_date",
                     absl::StrCat("found ", Shown(model.template_date()),
                                  "; wanted a date, as 2026-01-31"));
  }
  if (!is_custom && !is_checkpoint && name != "chatml" && name != "llama3" &&
      FindChat(name) == nullptr) {
    report->AddFault("model.chat_template",
                     absl::StrCat("found ", Shown(name),
                                  "; wanted chatml, llama3, custom, "
                                  "checkpoint, or the name of a model "
                                  "with a chat template (docs/families.md)"));
  } else if (is_custom && !report->Has("model.custom_template")) {
    report->AddMissing("model.custom_template",
                       "it where chat_template is custom");
  } else if (!is_custom && report->Has("model.custom_template")) {
    report->AddFault("model.custom_template",
                     absl::StrCat("found it with chat_template ", name,
                                  "; wanted chat_template: custom"));
  }
}

void CheckDecode(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model.decode")) return;
  if (model.decode() != v1::Model::DECODE_DEVICE) {
    if (model.device_unchecked() &&
        !report->IsFaulty("model.device_unchecked")) {
      report->AddFault("model.device_unchecked",
                       "found true with decode: host; wanted decode: device");
    }
    if (report->Has("model.device_share") &&
        !report->IsFaulty("model.device_share")) {
      report->AddFault(
          "model.device_share",
          absl::StrCat("found ", model.device_share(),
                       " with decode: host; wanted decode: device"));
    }
    return;
  }
  if (report->IsFaulty("model.resample")) return;
  if (model.resample() != v1::Model::RESAMPLE_FAST) return;
  report->AddFault("model.resample",
                   "found fast with decode: device; wanted pillow12, pillow13 "
                   "or torchvision, since the GPU decodes at full scale");
}

// An image token differs from all others only by its id.
void CheckImageToken(const v1::TokenIds& ids, KeyReport* report) {
  struct Other {
    const char* name;
    int32_t id;
  };
  for (const Other& other :
       {Other{"video", ids.video()}, Other{"vision_start", ids.vision_start()},
        Other{"vision_end", ids.vision_end()},
        Other{"im_start", ids.im_start()}, Other{"im_end", ids.im_end()},
        Other{"end_of_text", ids.end_of_text()}, Other{"pad", ids.pad()}}) {
    if (other.id != ids.image() || other.id < 0) continue;
    // Reports the fault at whichever of the two keys the file contains.
    const std::string key = report->Has("model.token_ids.image")
                                ? "model.token_ids.image"
                                : ChildKey("model.token_ids", other.name);
    report->AddFault(
        key, absl::StrCat("found ", other.id,
                          " as both token_ids.image and token_ids.", other.name,
                          "; wanted different ids"));
  }
}

}  // namespace

void ValidateModel(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model")) return;
  if (!report->IsFaulty("model.recipe") && IsStoreUrl(model.recipe())) {
    report->AddFault("model.recipe",
                     absl::StrCat("found ", Shown(model.recipe()),
                                  "; wanted the path of a Python file"));
  }
  const bool is_filled = CheckProfile(model, report);
  CheckTemplate(model, report);
  CheckDecode(model, report);
  ValidateImageFamily(model.image_family(), report);
  ValidateModelFamily(model, report);
  ValidateVideo(model, report);
  const auto check_three = [report](const std::string& key, int size) {
    if (!report->Has(key) || report->HasFaultWithin(key) || size == 3) return;
    report->AddFault(
        key, absl::StrCat("found ", size, " values; wanted 3, for R, G and B"));
  };
  check_three("model.mean", model.mean_size());
  check_three("model.std", model.std_size());
  if (!is_filled) return;
  if (!report->IsFaulty("model.min_pixels") &&
      !report->IsFaulty("model.max_pixels") &&
      model.min_pixels() > model.max_pixels()) {
    const bool has_min = report->Has("model.min_pixels");
    report->AddFault(
        has_min ? "model.min_pixels" : "model.max_pixels",
        absl::StrCat("found min_pixels ", model.min_pixels(),
                     " above max_pixels ", model.max_pixels(),
                     "; wanted min_pixels to be at most max_pixels"));
  }
  if (!report->HasFaultWithin("model.token_ids")) {
    CheckImageToken(model.token_ids(), report);
  }
}

namespace {

// Reports `key` if it is given and has no meaning where `wanted` does not hold.
void CheckUse(const char* key, bool has_meaning, const char* wanted,
              KeyReport* report) {
  if (has_meaning || !report->Has(key) || report->IsFaulty(key)) return;
  report->AddFault(key, absl::StrCat("found it, and it is not read; wanted ",
                                     wanted, ", or to leave it out"));
}

// Reports the bound that is given, if the least is above the most.
void CheckBounds(const char* least_key, uint64_t least, const char* most_key,
                 uint64_t most, KeyReport* report) {
  if (most == 0 || least <= most || report->IsFaulty(least_key) ||
      report->IsFaulty(most_key)) {
    return;
  }
  report->AddFault(
      least_key, absl::StrCat("found ", least, ", above ", most_key, " ", most,
                              "; wanted at most that"));
}

}  // namespace

void ValidateVideo(const v1::Model& model, KeyReport* report) {
  if (!model.has_video() || report->IsFaulty("model.video")) return;
  const v1::Videos::Rule rule = GetVideoRule(model);
  if (rule == v1::Videos::RULE_UNSPECIFIED) {
    report->AddFault("model.video",
                     "found it; wanted a model.profile whose videos are "
                     "carried, with its images (docs/video.md)");
    return;
  }
  const bool is_intern = rule == v1::Videos::RULE_INTERNVL;
  const bool is_llava = rule == v1::Videos::RULE_LLAVA_VIDEO;
  const bool is_tiles =
      is_intern || is_llava || rule == v1::Videos::RULE_LLAVA_ONEVISION;
  const v1::Model::Video& video = model.video();
  const bool by_class =
      video.sampling() == v1::Model::Video::SAMPLING_TRANSFORMERS;
  if (is_tiles) {
    // Frames are tiles of one size. InternVL's own rule counts intervals,
    // transformers' and the LLaVA models' frames a second.
    CheckUse("model.video.fps", by_class || !is_intern,
             "sampling: transformers", report);
    CheckUse("model.video.min_frames", !by_class && is_intern,
             is_intern ? "sampling: qwen_vl_utils" : "a profile of Qwen's",
             report);
    for (const char* key :
         {"model.video.min_pixels", "model.video.max_pixels",
          "model.video.total_pixels", "model.video.cap_pixels_per_frame"}) {
      CheckUse(key, false, "a profile of Qwen's", report);
    }
  } else {
    CheckUse("model.video.total_pixels", !by_class, "sampling: qwen_vl_utils",
             report);
    CheckUse("model.video.cap_pixels_per_frame", by_class,
             "sampling: transformers", report);
  }
  for (const char* key :
       {"model.video.force_sample", "model.video.time_instruction",
        "model.video.pool", "model.video.newline"}) {
    CheckUse(key, is_llava, "profile: llava_video", report);
  }
  const v1::AudioFamily* audio = GetAudioFamily(model);
  CheckUse("model.video.use_audio_in_video",
           audio != nullptr && audio->has_in_video(),
           "a model.profile with audio.in_video, such as qwen2_5_omni", report);
  if (is_llava) {
    if (by_class && !report->IsFaulty("model.video.sampling")) {
      report->AddFault("model.video.sampling",
                       "found transformers, which has no LLaVA-Video; wanted "
                       "qwen_vl_utils, which is its training code's rule, or "
                       "to leave it out");
    }
    CheckUse("model.video.force_sample",
             !video.force_sample() || video.max_frames() != 0, "max_frames",
             report);
  }
  CheckBounds("model.video.min_frames", video.min_frames(),
              "model.video.max_frames", video.max_frames(), report);
  CheckBounds("model.video.min_pixels", video.min_pixels(),
              "model.video.max_pixels", video.max_pixels(), report);
}

// An encoder of a kind that travels as rows and is not audio, and a model that
// takes that kind, want each other.
void ValidateOtherRows(const v1::Config& config, KeyReport* report) {
  if (DpSize(config, v1::MODULE_OTHER) == 0 ||
      report->HasFaultWithin("topology.modules") ||
      report->HasFaultWithin("model")) {
    return;
  }
  const absl::string_view name = ModuleName(v1::MODULE_OTHER);
  const v1::ModelProfile* profile = GetProfile(config.model());
  if (profile != nullptr && profile->medium().kind() == name) return;
  report->AddFault(
      absl::StrCat("topology.modules.", name),
      absl::StrCat(
          "found it with model.profile ",
          config.model().profile().empty() ? "\"\"" : config.model().profile(),
          ", which takes no ", name,
          "; wanted a file with a section medium of kind ", name));
}

void ValidateAudio(const v1::Config& config, KeyReport* report) {
  ValidateOtherRows(config, report);
  if (DpSize(config, v1::MODULE_AUDIO) == 0 ||
      report->HasFaultWithin("topology.modules") ||
      report->HasFaultWithin("model")) {
    return;
  }
  const std::string& profile = config.model().profile();
  if (GetAudioFamily(config.model()) == nullptr) {
    report->AddFault(
        "topology.modules.audio",
        absl::StrCat("found it with model.profile ",
                     profile.empty() ? "\"\"" : profile,
                     ", which takes no audio; wanted one of ",
                     absl::StrJoin(AudioFamilyNames(), ", "),
                     ", or a file of your own with a section audio"));
  }
  if (report->Has("balance.cost.model") && !report->Has("balance.cost.audio")) {
    report->AddMissing("balance.cost.audio",
                       "it with balance.cost.model, which computes no cost "
                       "of audio; {linear, quadratic} of frames");
  }
}

}  // namespace ballast
