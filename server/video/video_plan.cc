#include "server/video/video_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/image_plan/image_planner.h"

namespace ballast {
namespace {

// In tokens.
constexpr uint64_t kMinFrameTokens = 128;
constexpr uint64_t kMaxFrameTokens = 768;
constexpr uint64_t kContextTokens = 128000;
constexpr double kContextShare = 0.9;
// At least this much above the smallest frame, whatever the total says.
constexpr double kFloor = 1.05;
constexpr double kMaxRatio = 200;
constexpr double kMaxFrameSide = uint32_t{1} << 26;

uint64_t Or(uint64_t value, uint64_t other) { return value ? value : other; }

absl::Status Refused(uint32_t height, uint32_t width, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "a video of height ", height, " and width ", width, "; ", why));
}

absl::StatusOr<TileShape> Sized(uint32_t height, uint32_t width, double h,
                                double w) {
  if (!(h >= 1 && w >= 1 && h <= kMaxFrameSide && w <= kMaxFrameSide)) {
    return Refused(height, width,
                   absl::StrCat("the limits give it the size ", h, "x", w,
                                "; raise max_pixels or total_pixels"));
  }
  return TileShape{static_cast<uint32_t>(h), static_cast<uint32_t>(w)};
}

absl::Status CheckLimits(double min_pixels, double max_pixels) {
  if (max_pixels >= min_pixels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("max_pixels of ", max_pixels, " is below min_pixels of ",
                   min_pixels, "; raise the one or lower the other"));
}

// smart_resize of qwen-vl-utils.
absl::StatusOr<TileShape> UtilsResize(uint32_t height, uint32_t width,
                                      double factor, double min_pixels,
                                      double max_pixels) {
  const double h = height;
  const double w = width;
  BALLAST_RETURN_IF_ERROR(CheckLimits(min_pixels, max_pixels));
  if (std::max(h, w) / std::min(h, w) > kMaxRatio) {
    return Refused(height, width, "wanted sides in a ratio of at most 200");
  }
  double out_h = std::max(factor, std::nearbyint(h / factor) * factor);
  double out_w = std::max(factor, std::nearbyint(w / factor) * factor);
  if (out_h * out_w > max_pixels) {
    const double beta = std::sqrt(h * w / max_pixels);
    out_h = std::floor(h / beta / factor) * factor;
    out_w = std::floor(w / beta / factor) * factor;
  } else if (out_h * out_w < min_pixels) {
    const double beta = std::sqrt(min_pixels / (h * w));
    out_h = std::ceil(h * beta / factor) * factor;
    out_w = std::ceil(w * beta / factor) * factor;
  }
  return Sized(height, width, out_h, out_w);
}

// smart_resize of transformers' Qwen3-VL: its budget is that of all frames.
absl::StatusOr<TileShape> Qwen3Resize(uint32_t height, uint32_t width,
                                      double frames, double temporal,
                                      double factor, double min_pixels,
                                      double max_pixels) {
  if (frames < temporal) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a video of ", frames, " frames; wanted at least ", temporal));
  }
  double h = height;
  double w = width;
  if (h < factor || w < factor) {
    const double scale = std::max(factor / h, factor / w);
    h = std::trunc(h * scale);
    w = std::trunc(w * scale);
  }
  if (std::max(h, w) / std::min(h, w) > kMaxRatio) {
    return Refused(height, width, "wanted sides in a ratio of at most 200");
  }
  double out_h = std::nearbyint(h / factor) * factor;
  double out_w = std::nearbyint(w / factor) * factor;
  const double out_t = std::nearbyint(frames / temporal) * temporal;
  if (out_t * out_h * out_w > max_pixels) {
    const double beta = std::sqrt(frames * h * w / max_pixels);
    out_h = std::max(factor, std::floor(h / beta / factor) * factor);
    out_w = std::max(factor, std::floor(w / beta / factor) * factor);
  } else if (out_t * out_h * out_w < min_pixels) {
    const double beta = std::sqrt(min_pixels / (frames * h * w));
    out_h = std::ceil(h * beta / factor) * factor;
    out_w = std::ceil(w * beta / factor) * factor;
  }
  return Sized(height, width, out_h, out_w);
}

absl::StatusOr<TileShape> ResizeByUtils(const VideoModel& model, double frames,
                                        uint32_t height, uint32_t width) {
  const uint64_t factor = uint64_t{model.patch} * model.merge;
  const uint64_t token = factor * factor;
  const auto min_pixels =
      static_cast<double>(Or(model.min_pixels, kMinFrameTokens * token));
  const double total_pixels =
      model.total_pixels != 0
          ? static_cast<double>(model.total_pixels)
          : static_cast<double>(kContextTokens * token) * kContextShare;
  double max_pixels =
      std::max(std::min(static_cast<double>(kMaxFrameTokens * token),
                        total_pixels / frames * 2),
               std::trunc(min_pixels * kFloor));
  if (model.max_pixels != 0) {
    max_pixels = std::min(static_cast<double>(model.max_pixels), max_pixels);
  }
  return UtilsResize(height, width, static_cast<double>(factor), min_pixels,
                     max_pixels);
}

absl::StatusOr<TileShape> ResizeByClass(const VideoModel& model,
                                        uint64_t frames, uint32_t height,
                                        uint32_t width) {
  const uint64_t factor = uint64_t{model.patch} * model.merge;
  const uint64_t token = factor * factor;
  const uint64_t min_pixels = Or(model.min_pixels, kMinFrameTokens * token);
  uint64_t max_pixels = Or(model.max_pixels, kMaxFrameTokens * token);
  const auto floor =
      static_cast<uint64_t>(static_cast<double>(min_pixels) * kFloor);
  if (model.rule == VideoRule::kQwen2) {
    if (model.cap_pixels_per_frame) {
      const auto total = static_cast<uint64_t>(
          static_cast<double>(kContextTokens * token) * kContextShare);
      max_pixels = std::max(
          std::min(max_pixels, total * model.temporal / frames), floor);
    }
    return SmartResize(height, width, factor, min_pixels, max_pixels);
  }
  if (model.cap_pixels_per_frame) {
    max_pixels =
        frames *
        std::max(std::min(kMaxFrameTokens * token, max_pixels / frames), floor);
  }
  return Qwen3Resize(height, width, static_cast<double>(frames), model.temporal,
                     static_cast<double>(factor),
                     static_cast<double>(min_pixels),
                     static_cast<double>(max_pixels));
}

// Adds the times of temporal patches: frames `times` (numbers) at `fps`.
void AddSeconds(const VideoModel& model, const std::vector<uint32_t>& times,
                double fps, VideoPlan* plan) {
  for (size_t i = 0; i < times.size(); i += model.temporal) {
    // The last frame is repeated to fill a patch.
    const size_t last = std::min<size_t>(i + model.temporal, times.size()) - 1;
    plan->seconds.push_back((times[i] / fps + times[last] / fps) / 2);
  }
}

// Adds size, grid and tokens; the frames are known.
absl::Status AddSize(const VideoModel& model, uint32_t height, uint32_t width,
                     VideoPlan* plan) {
  plan->grid_t = static_cast<uint32_t>(
      (plan->frames.size() + model.temporal - 1) / model.temporal);
  if (model.side != 0) {
    plan->height = plan->width = model.side;
    plan->grid_h = plan->grid_w = model.side / model.patch;
    plan->tokens =
        uint64_t{plan->grid_t} * model.frame_tokens + model.end_tokens;
    return absl::OkStatus();
  }
  const absl::StatusOr<TileShape> size =
      model.sampling == VideoSampling::kOwn
          ? ResizeByUtils(model, static_cast<double>(plan->frames.size()),
                          height, width)
          : ResizeByClass(model, plan->frames.size(), height, width);
  if (!size.ok()) return size.status();
  plan->height = size->height;
  plan->width = size->width;
  plan->grid_h = size->height / model.patch;
  plan->grid_w = size->width / model.patch;
  plan->tokens = uint64_t{plan->grid_t} * plan->grid_h * plan->grid_w /
                 (model.merge * model.merge);
  return absl::OkStatus();
}

absl::Status CheckSides(uint32_t height, uint32_t width) {
  if (height == 0 || width == 0 || height > kMaxFrameSide ||
      width > kMaxFrameSide) {
    return Refused(height, width, "wanted sides of 1 to 67108864 pixels");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VideoPlan> PlanVideo(const VideoModel& model,
                                    const VideoLength& video, uint32_t height,
                                    uint32_t width, const VideoClip& clip,
                                    uint64_t seed) {
  BALLAST_RETURN_IF_ERROR(CheckSides(height, width));
  BALLAST_ASSIGN_OR_RETURN(SampledFrames sampled,
                           SampleFrames(model, video, clip, seed));
  VideoPlan plan;
  plan.frames = std::move(sampled.frames);
  if (model.tells_times) {
    plan.told_length = sampled.clip_frames / video.fps;
    plan.told_seconds = std::move(sampled.told_seconds);
  }
  // As both libraries do, in their order of operations.
  const double sampled_fps = static_cast<double>(plan.frames.size()) /
                             std::max<double>(sampled.clip_frames, 1e-6) *
                             video.fps;
  plan.seconds_per_patch = model.temporal / sampled_fps;
  AddSeconds(model, plan.frames, video.fps, &plan);
  BALLAST_RETURN_IF_ERROR(AddSize(model, height, width, &plan));
  return plan;
}

absl::StatusOr<VideoPlan> PlanFrameList(const VideoModel& model, uint32_t count,
                                        double fps, uint32_t height,
                                        uint32_t width) {
  constexpr double kUtilsFps = 2.0;
  constexpr double kClassFps = 24.0;
  constexpr uint64_t kMinImageTokens = 4;
  constexpr uint64_t kMaxImageTokens = 16384;
  BALLAST_RETURN_IF_ERROR(CheckSides(height, width));
  if (count == 0) {
    return absl::InvalidArgumentError("a video of no frames");
  }
  const bool is_own = model.sampling == VideoSampling::kOwn;
  if (!(fps > 0)) fps = is_own ? kUtilsFps : kClassFps;
  VideoPlan plan;
  std::vector<uint32_t> times;
  const bool is_padded = is_own && model.temporal > 1;
  const uint64_t padded = is_padded ? (uint64_t{count} + model.temporal - 1) /
                                          model.temporal * model.temporal
                                    : count;
  for (uint64_t i = 0; i < padded; ++i) {
    times.push_back(static_cast<uint32_t>(i));
    plan.frames.push_back(
        static_cast<uint32_t>(std::min<uint64_t>(i, count - 1)));
  }
  plan.seconds_per_patch = model.temporal / fps;
  AddSeconds(model, times, fps, &plan);
  if (is_padded) {
    // It takes the factor of a video for the side of an image's patch.
    const uint64_t factor = uint64_t{model.patch} * model.merge * 2;
    const uint64_t token = factor * factor;
    const auto first = UtilsResize(
        height, width, static_cast<double>(factor),
        static_cast<double>(Or(model.min_pixels, kMinImageTokens * token)),
        static_cast<double>(Or(model.max_pixels, kMaxImageTokens * token)));
    if (!first.ok()) return first.status();
    plan.first_height = height = first->height;
    plan.first_width = width = first->width;
  }
  BALLAST_RETURN_IF_ERROR(AddSize(model, height, width, &plan));
  return plan;
}

}  // namespace ballast
