#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/config/config_validate.h"
#include "server/config/image_family_config.h"
#include "server/config/model_profile.h"
#include "server/config/profiles.h"

namespace ballast {
namespace {

// A profile of Qwen's knows nothing of another family's pixels.
void CheckOwnNorm(KeyReport* report) {
  if (!report->Has("model.image_family")) return;
  for (const char* name : {"mean", "std"}) {
    const std::string key = ChildKey("model", name);
    if (report->Has(key) || report->IsFaulty(key)) continue;
    report->AddMissing(
        key,
        absl::StrCat("three numbers, for R, G and B in [0, 1], beside a "
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
          is_encoder ? ", an encoder whose images stand in no text" : "",
          "; wanted a model of docs/families.md, such as qwen2_5_vl or "
          "internvl3, the path of a file that ends in .textproto, or \"\""));
  return false;
}

void CheckTemplate(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model.chat_template")) return;
  const std::string& name = model.chat_template();
  const bool is_custom = name == "custom";
  if (!is_custom && name != "chatml" && name != "llama3" &&
      FindChat(name) == nullptr) {
    report->AddFault(
        "model.chat_template",
        absl::StrCat("found ", Shown(name),
                     "; wanted chatml, llama3, custom, or the name of a model "
                     "with a chat template (docs/families.md)"));
  } else if (is_custom && !report->Has("model.custom_template")) {
    report->AddMissing("model.custom_template",
                       "it where chat_template is custom");
  } else if (!is_custom && report->Has("model.custom_template")) {
    report->AddFault("model.custom_template",
                     absl::StrCat("found it beside chat_template ", name,
                                  "; wanted chat_template: custom"));
  }
}

void CheckDecode(const v1::Model& model, KeyReport* report) {
  if (report->IsFaulty("model.decode")) return;
  if (model.decode() != v1::Model::DECODE_DEVICE) {
    if (model.device_unchecked() &&
        !report->IsFaulty("model.device_unchecked")) {
      report->AddFault("model.device_unchecked",
                       "found true beside decode: host; wanted decode: device");
    }
    if (report->Has("model.device_share") &&
        !report->IsFaulty("model.device_share")) {
      report->AddFault(
          "model.device_share",
          absl::StrCat("found ", model.device_share(),
                       " beside decode: host; wanted decode: device"));
    }
    return;
  }
  if (report->IsFaulty("model.resample")) return;
  if (model.resample() != v1::Model::RESAMPLE_FAST) return;
  report->AddFault(
      "model.resample",
      "found fast beside decode: device; wanted pillow12, pillow13 "
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

}  // namespace ballast
