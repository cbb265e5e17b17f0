#include "server/video/video_model.h"

#include <utility>

namespace ballast {
namespace {

VideoModel Qwen(const char* name, VideoRule rule, uint32_t patch) {
  VideoModel model;
  model.name = name;
  model.rule = rule;
  model.patch = patch;
  model.merge = 2;
  model.temporal = 2;
  return model;
}

VideoModel Squares(const char* name, VideoRule rule, uint32_t patch,
                   uint32_t side, uint32_t frame_tokens) {
  VideoModel model;
  model.name = name;
  model.rule = rule;
  model.patch = patch;
  model.side = side;
  model.frame_tokens = frame_tokens;
  return model;
}

std::vector<VideoModel> AllModels() {
  return {
      Squares("internvl3", VideoRule::kInternVl, 14, 448, 256),
      // 27 x 27 patches, pooled to 14 x 14; LLaVA-Video ends each row with a
      // newline, OneVision each video.
      Squares("llava_onevision", VideoRule::kOneVision, 14, 384, 196),
      Squares("llava_video", VideoRule::kLlava, 14, 384, 210),
      Qwen("qwen2_5_vl", VideoRule::kQwen2, 14),
      Qwen("qwen2_vl", VideoRule::kQwen2, 14),
      Qwen("qwen3_5_vl", VideoRule::kQwen3, 16),
      Qwen("qwen3_vl", VideoRule::kQwen3, 16),
  };
}

}  // namespace

std::optional<VideoModel> FindVideoModel(absl::string_view name,
                                         VideoSampling sampling) {
  for (VideoModel& model : AllModels()) {
    if (model.name != name) continue;
    model.sampling = sampling;
    model.has_seconds = model.name == "qwen2_5_vl";
    model.frames_are_crops = model.rule == VideoRule::kInternVl;
    return std::move(model);
  }
  return std::nullopt;
}

std::vector<std::string> VideoModelNames() {
  std::vector<std::string> names;
  for (const VideoModel& model : AllModels()) names.push_back(model.name);
  return names;
}

}  // namespace ballast
