#include "server/model/model_videos.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/sample/image_header.h"

namespace ballast {
namespace {

// Sets the tokens of a frame of LLaVA-Video's, from its side and patch.
void CountLlavaTokens(VideoPool pool, VideoNewline newline, VideoModel* model) {
  const uint32_t patches = model->side / model->patch;
  const uint32_t side =
      pool == VideoPool::kBilinear ? (patches + 1) / 2 : patches / 2;
  model->frame_tokens = side * side;
  if (newline == VideoNewline::kRow) model->frame_tokens += side;
  if (newline == VideoNewline::kFrame) model->frame_tokens += 1;
  model->end_tokens = newline == VideoNewline::kVideo ? 1 : 0;
}

// Increase whenever the same facts and limits yield another plan or text.
constexpr int kPlanVersion = 1;
constexpr uint32_t kMaxGridSide = 65535;  // CheckColumns

VideoPool GetPool(const v1::Model::Video& video) {
  return video.pool() == v1::Model::Video::POOL_AVERAGE ||
                 video.pool() == v1::Model::Video::POOL_MAX
             ? VideoPool::kWindows
             : VideoPool::kBilinear;
}

VideoNewline GetNewline(const v1::Model::Video& video) {
  switch (video.newline()) {
    case v1::Model::Video::NEWLINE_FRAME:
      return VideoNewline::kFrame;
    case v1::Model::Video::NEWLINE_ONE_TOKEN:
      return VideoNewline::kVideo;
    case v1::Model::Video::NEWLINE_NO_TOKEN:
      return VideoNewline::kNone;
    default:
      return VideoNewline::kRow;
  }
}

VideoRule GetRule(v1::Videos::Rule rule) {
  switch (rule) {
    case v1::Videos::RULE_QWEN3:
      return VideoRule::kQwen3;
    case v1::Videos::RULE_LLAVA_VIDEO:
      return VideoRule::kLlava;
    case v1::Videos::RULE_LLAVA_ONEVISION:
      return VideoRule::kOneVision;
    case v1::Videos::RULE_INTERNVL:
      return VideoRule::kInternVl;
    default:
      return VideoRule::kQwen2;
  }
}

absl::Status CheckPlan(const VideoPlan& plan) {
  const auto fault = [](const auto&... pieces) {
    return absl::InvalidArgumentError(absl::StrCat("a video ", pieces...));
  };
  if (uint64_t{plan.height} * plan.width > kMaxImagePixels ||
      uint64_t{plan.first_height} * plan.first_width > kMaxImagePixels ||
      plan.grid_h > kMaxGridSide || plan.grid_w > kMaxGridSide) {
    return fault("would be resized to ", plan.width, "x", plan.height,
                 " pixels; at most ", kMaxImagePixels, " are made, and ",
                 kMaxGridSide, " patches a side");
  }
  if (plan.tokens > std::numeric_limits<uint32_t>::max()) {
    return fault("would take ", plan.tokens,
                 " tokens; wanted at most 2^32-1: lower model.video.max_frames "
                 "or max_pixels");
  }
  const auto seconds = static_cast<float>(plan.seconds_per_patch);
  if (!(seconds > 0) || !std::isfinite(seconds)) {
    return fault(
        "has ", plan.seconds_per_patch,
        " seconds between temporal patches; wanted more than 0: is its "
        "frame rate right?");
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<VideoModel> GetVideoModel(const v1::Model& model) {
  const v1::Videos::Rule rule = GetVideoRule(model);
  if (rule == v1::Videos::RULE_UNSPECIFIED || model.patch() == 0) {
    return std::nullopt;
  }
  const v1::Videos& profile = GetProfile(model)->videos();
  // Each given limit replaces the profile's.
  v1::Model::Video limits = profile.defaults();
  limits.MergeFrom(model.video());
  VideoModel video;
  video.name = model.profile();
  video.rule = GetRule(rule);
  video.sampling = limits.sampling() == v1::Model::Video::SAMPLING_TRANSFORMERS
                       ? VideoSampling::kTransformers
                       : VideoSampling::kOwn;
  video.has_seconds = profile.positions_in_seconds();
  video.ids_per_second = GetProfile(model)->audio().in_video().ids_per_second();
  video.frames_are_crops = video.rule == VideoRule::kInternVl;
  video.fps = limits.fps();
  video.min_frames = limits.min_frames();
  video.max_frames = limits.max_frames();
  video.min_pixels = limits.min_pixels();
  video.max_pixels = limits.max_pixels();
  video.total_pixels = limits.total_pixels();
  video.cap_pixels_per_frame = limits.cap_pixels_per_frame();
  video.patch = model.patch();
  video.temporal = model.temporal_patch();
  if (video.rule == VideoRule::kQwen2 || video.rule == VideoRule::kQwen3) {
    video.merge = model.merge();
    return video;
  }
  // A frame is one tile, which LLaVA-OneVision pools to half its sides.
  video.side = model.image_family().tile();
  if (video.rule == VideoRule::kLlava) {
    CountLlavaTokens(GetPool(limits), GetNewline(limits), &video);
    video.force_sample = limits.force_sample();
    video.tells_times = limits.time_instruction();
    return video;
  }
  uint32_t tokens = video.side / model.patch() / model.merge();
  if (video.rule == VideoRule::kOneVision) {
    tokens = (tokens + 1) / 2;
    video.end_tokens = 1;  // a newline
  }
  video.frame_tokens = tokens * tokens;
  return video;
}

std::optional<VideoModel> FindVideoModel(absl::string_view name,
                                         VideoSampling sampling) {
  v1::Model model;
  model.set_profile(std::string(name));
  if (sampling == VideoSampling::kTransformers) {
    model.mutable_video()->set_sampling(
        v1::Model::Video::SAMPLING_TRANSFORMERS);
  }
  if (!ApplyModelProfile(&model).ok()) return std::nullopt;
  return GetVideoModel(model);
}

std::vector<std::string> VideoModelNames() {
  return ProfileNames(
      [](const v1::ModelProfile& profile) { return profile.has_videos(); });
}

std::string VideoPlanKey(const v1::Model& model) {
  const std::optional<VideoModel> video = GetVideoModel(model);
  if (!video.has_value()) return "";
  std::string key = absl::StrCat("plan_version=", kPlanVersion, "\n");
  const auto add = [&key](absl::string_view name, auto value) {
    absl::StrAppend(&key, "video.", name, "=", value, "\n");
  };
  add("rule", static_cast<int>(video->rule));
  add("sampling", static_cast<int>(video->sampling));
  add("fps", absl::StrFormat("%.17g", video->fps));
  add("min_frames", video->min_frames);
  add("max_frames", video->max_frames);
  add("min_pixels", video->min_pixels);
  add("max_pixels", video->max_pixels);
  add("total_pixels", video->total_pixels);
  add("cap_pixels_per_frame", video->cap_pixels_per_frame);
  add("patch", video->patch);
  add("merge", video->merge);
  add("temporal", video->temporal);
  add("side", video->side);
  add("frame_tokens", video->frame_tokens);
  if (video->rule == VideoRule::kLlava) {
    add("end_tokens", video->end_tokens);
    add("force_sample", video->force_sample);
    add("tells_times", video->tells_times);
  }
  // Before, a sample with a video before an image was bad.
  if (video->frames_are_crops) add("order", "text");
  // 1: other audio beside such videos was bad.
  if (model.video().use_audio_in_video()) add("audio", 2);
  return key;
}

StreamFacts GetIndexedVideo(const VideoFacts& facts) {
  StreamFacts video = {};
  video.fps = facts.fps;
  video.frames = facts.frames();
  video.width = facts.shown_width();
  video.height = facts.shown_height();
  video.rotation = facts.rotation;
  for (const VideoFrame& frame : facts.table.frames) {
    video.key_frames +=
        facts.table.is_timed && frame.packet == frame.start ? 1 : 0;
  }
  if (facts.is_variable) video.flags |= StreamFacts::kIsVariable;
  if (!facts.times.empty()) video.flags |= StreamFacts::kHasTimes;
  std::copy_n(facts.codec.begin(),
              std::min(facts.codec.size(), sizeof(video.codec)), video.codec);
  return video;
}

uint64_t SeedOfVideo(const StreamFacts& video) {
  uint64_t seed = 0;
  for (const uint64_t fact :
       {std::bit_cast<uint64_t>(video.fps),
        std::bit_cast<uint64_t>(video.start),
        std::bit_cast<uint64_t>(video.end), uint64_t{video.frames},
        uint64_t{video.width}, uint64_t{video.height},
        uint64_t{video.key_frames}}) {
    // MurmurHash3's finaliser: every bit of a fact moves half of the seed's.
    seed ^= fact + 0x9E3779B97F4A7C15u;
    seed = (seed ^ (seed >> 33)) * 0xFF51AFD7ED558CCDu;
    seed = (seed ^ (seed >> 33)) * 0xC4CEB9FE1A85EC53u;
    seed ^= seed >> 33;
  }
  return seed;
}

absl::StatusOr<VideoPlan> PlanIndexedVideo(const VideoModel& model,
                                           const StreamFacts& video,
                                           FrameTimes times) {
  if (video.flags & StreamFacts::kIsList) {
    if (model.rule == VideoRule::kInternVl || model.rule == VideoRule::kLlava) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a list of pictures, which ",
          model.rule == VideoRule::kLlava ? "LLaVA-Video" : "InternVL",
          " does not take as a video: give them as images"));
    }
    BALLAST_ASSIGN_OR_RETURN(
        VideoPlan list, PlanFrameList(model, video.frames, video.sample_fps,
                                      video.height, video.width));
    // A last frame that is repeated travels once.
    list.frames.resize(video.frames);
    BALLAST_RETURN_IF_ERROR(CheckPlan(list));
    return list;
  }
  VideoClip clip;
  if (video.flags & StreamFacts::kHasStart) clip.start = video.start;
  if (video.flags & StreamFacts::kHasEnd) clip.end = video.end;
  if (times.size() != video.times()) {
    return absl::InternalError(absl::StrCat(
        times.size(), " times of a video of ", video.frames, " frames"));
  }
  const VideoLength length = {video.frames, video.fps, times};
  const uint64_t seed = SeedOfVideo(video);
  BALLAST_ASSIGN_OR_RETURN(const VideoPlan plan, [&] {
    if (!(video.sample_fps > 0)) {
      return PlanVideo(model, length, video.height, video.width, clip, seed);
    }
    VideoModel own = model;
    own.fps = video.sample_fps;
    return PlanVideo(own, length, video.height, video.width, clip, seed);
  }());
  BALLAST_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace ballast
