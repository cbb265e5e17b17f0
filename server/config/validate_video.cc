#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/config/config_validate.h"
#include "server/config/profiles.h"

namespace ballast {
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
  const v1::Videos::Rule rule = VideoRuleOf(model);
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
  if (is_llava) {
    if (by_class && !report->IsFaulty("model.video.sampling")) {
      report->AddFault("model.video.sampling",
                       "found transformers, which has no LLaVA-Video; wanted "
                       "qwen_vl_utils, which stands for its training code, or "
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

}  // namespace ballast
