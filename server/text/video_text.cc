#include "server/text/video_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ballast {
namespace {

// tokens_per_second of the released checkpoints of Qwen2.5-VL.
constexpr float kPositionsPerSecond = 2;

// LLaVA-NeXT's add_time_instruction, to the letter. Python's .2f and this round
// the exact value half to even.
std::string TimesOf(const VideoPlan& plan) {
  std::string times;
  for (const double seconds : plan.told_seconds) {
    absl::StrAppendFormat(&times, "%s%.2fs", times.empty() ? "" : ",", seconds);
  }
  return absl::StrFormat(
      "The video lasts for %.2f seconds, and %d frames are uniformly sampled "
      "from it. These frames are located at %s.Please answer the following "
      "questions related to this video.",
      plan.told_length, plan.told_seconds.size(), times);
}

}  // namespace

VideoText TextOfVideo(VideoRule rule, const VideoPlan& plan, uint32_t merge) {
  VideoText text;
  if (rule == VideoRule::kInternVl) {
    text.runs = plan.grid_t;
    text.run_tokens = static_cast<uint32_t>(plan.tokens / plan.grid_t);
    for (uint32_t i = 1; i <= plan.grid_t; ++i) {
      text.before.push_back(absl::StrCat(i > 1 ? "\n" : "", "Frame", i, ": "));
    }
    return text;
  }
  if (rule == VideoRule::kOneVision || rule == VideoRule::kLlava) {
    text.run_tokens = static_cast<uint32_t>(plan.tokens);
    if (!plan.told_seconds.empty()) text.times = TimesOf(plan);
    return text;
  }
  const uint32_t of_patch = plan.grid_h * plan.grid_w / (merge * merge);
  if (rule != VideoRule::kQwen3) {
    text.run_tokens = plan.grid_t * of_patch;
    return text;
  }
  text.runs = plan.grid_t;
  text.run_tokens = of_patch;
  for (const double seconds : plan.seconds) {
    // Python's f"{seconds:.1f}": both round the exact value half to even.
    text.before.push_back(absl::StrFormat("<%.1f seconds>", seconds));
  }
  return text;
}

void AppendRuns(absl::Span<const VideoText> videos,
                std::vector<uint32_t>* placeholders) {
  for (const VideoText& video : videos) {
    placeholders->insert(placeholders->end(), video.runs, video.run_tokens);
  }
}

void AppendGrids(const VideoModel& video, const VideoPlan& plan,
                 std::vector<GridThw>* grids) {
  if (video.rule == VideoRule::kQwen3) {
    grids->insert(grids->end(), plan.grid_t,
                  GridThw{1, plan.grid_h, plan.grid_w});
    return;
  }
  // transformers multiplies floats.
  const float interval =
      video.has_seconds
          ? kPositionsPerSecond * static_cast<float>(plan.seconds_per_patch)
          : 1.0f;
  grids->push_back({plan.grid_t, plan.grid_h, plan.grid_w, interval});
}

}  // namespace ballast
