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

// 27 x 27 patches of a frame are pooled to 14 x 14; a newline ends each video.
VideoModel OneVision() {
  VideoModel model =
      Squares("llava_onevision", VideoRule::kOneVision, 14, 384, 196);
  model.end_tokens = 1;
  return model;
}

VideoModel LlavaVideo() {
  VideoModel model = Squares("llava_video", VideoRule::kLlava, 14, 384, 0);
  CountLlavaTokens(VideoPool::kBilinear, VideoNewline::kRow, &model);
  return model;
}

std::vector<VideoModel> AllModels() {
  return {
      Squares("internvl3", VideoRule::kInternVl, 14, 448, 256),
      OneVision(),
      LlavaVideo(),
      Qwen("qwen2_5_vl", VideoRule::kQwen2, 14),
      Qwen("qwen2_vl", VideoRule::kQwen2, 14),
      Qwen("qwen3_5_vl", VideoRule::kQwen3, 16),
      Qwen("qwen3_vl", VideoRule::kQwen3, 16),
  };
}

}  // namespace

void CountLlavaTokens(VideoPool pool, VideoNewline newline, VideoModel* model) {
  const uint32_t patches = model->side / model->patch;
  const uint32_t side =
      pool == VideoPool::kBilinear ? (patches + 1) / 2 : patches / 2;
  model->frame_tokens = side * side;
  if (newline == VideoNewline::kRow) model->frame_tokens += side;
  if (newline == VideoNewline::kFrame) model->frame_tokens += 1;
  model->end_tokens = newline == VideoNewline::kVideo ? 1 : 0;
}

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
