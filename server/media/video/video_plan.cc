#include "server/media/video/video_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/media/image_plan/image_planner.h"
#include "server/media/image_plan/tile_rules.h"

namespace ballast {
namespace {

constexpr double kDefaultFps = 2.0;
constexpr double kLlavaFps = 1.0;
constexpr uint32_t kMinFrames = 4;
constexpr uint32_t kMaxFrames = 768;
// More than any model takes: of a video that is shorter, frames are repeated.
constexpr uint32_t kMaxForcedFrames = 1 << 16;
constexpr uint32_t kInternMinFrames = 8;
constexpr uint32_t kInternMaxFrames = 32;

uint32_t Or(uint32_t value, uint32_t other) {
  return value != 0 ? value : other;
}

double GetFps(const VideoModel& model, double other = kDefaultFps) {
  return model.fps > 0 ? model.fps : other;
}

absl::Status TooFew(const VideoModel& model, double wanted, double frames) {
  return absl::InvalidArgumentError(absl::StrCat(
      model.name, " would sample ", wanted, " of ", frames,
      " frames; wanted at least 2 and at most all: raise fps, lower "
      "min_frames, or leave the video out"));
}

// torch.linspace(first, last, count).round() of 32-bit floats: from both ends
// towards the middle, with fused multiplication.
std::vector<uint32_t> TorchLinspace(uint32_t first, uint32_t last,
                                    uint32_t count) {
  const auto start = static_cast<float>(first);
  const auto end = static_cast<float>(last);
  const float step =
      count > 1 ? (end - start) / static_cast<float>(count - 1) : 0;
  std::vector<uint32_t> frames(count);
  for (uint32_t i = 0; i < count; ++i) {
    const float value =
        i < count / 2 ? std::fma(step, static_cast<float>(i), start)
                      : std::fma(-step, static_cast<float>(count - i - 1), end);
    frames[i] = static_cast<uint32_t>(std::nearbyint(value));
  }
  if (count == 1) frames[0] = first;
  return frames;
}

// numpy.linspace(0, last, count): its last value is `last` itself.
std::vector<double> NumpyLinspace(double last, uint32_t count) {
  std::vector<double> values(count);
  const double step = count > 1 ? last / (count - 1) : 0;
  for (uint32_t i = 0; i < count; ++i) values[i] = i * step;
  if (count > 1) values.back() = last;
  return values;
}

// torch.arange(start, end, step).int() of 32-bit floats: by sixteens, eight
// values from a rounded one.
std::vector<uint32_t> TorchArange(double start, double end, double step) {
  constexpr uint32_t kVector = 8;
  const auto count = static_cast<uint32_t>(std::ceil((end - start) / step));
  const uint32_t in_vectors = count / (2 * kVector) * (2 * kVector);
  std::vector<uint32_t> frames(count);
  for (uint32_t i = 0; i < count; ++i) {
    float value = static_cast<float>(start + step * i);
    if (i < in_vectors) {
      const auto base =
          static_cast<float>(start + step * (i / kVector * kVector));
      value = static_cast<float>(double{base} + step * (i % kVector));
    }
    frames[i] = static_cast<uint32_t>(value);
  }
  return frames;
}

struct FrameRange {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t count() const { return last - first + 1; }
};

// Frames of variable rate that begin before `seconds`, to the unit of times.
double FramesBefore(const VideoLength& video, double seconds) {
  const auto frames = video.times.first(video.frames);
  const double time = std::nearbyint(seconds * kTimesASecond);
  return static_cast<double>(
      std::lower_bound(frames.begin(), frames.end(), time) - frames.begin());
}

// The stretch as a video.
VideoLength CutOut(const VideoLength& video, FrameRange range) {
  if (video.times.empty()) return {range.count(), video.fps};
  const auto times = video.times.subspan(range.first, range.count() + 1);
  const uint32_t length = std::max(1u, times.back() - times.front());
  const double frames = range.count();
  return {range.count(), frames * kTimesASecond / length, times};
}

absl::StatusOr<FrameRange> GetRange(const VideoLength& video,
                                    const VideoClip& clip) {
  if (video.frames == 0 || !(video.fps > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a video of ", video.frames, " frames at ", video.fps,
                     " frames a second; wanted at least 1, above 0"));
  }
  FrameRange range = {0, video.frames - 1};
  const double longest = video.times.empty() ? video.frames / video.fps
                                             : video.seconds(video.frames);
  const auto clamped = [&](double t) {
    return std::max(0.0, std::min(t, longest));
  };
  double first = 0;
  double last = range.last;
  if (clip.start.has_value()) {
    const double start = clamped(*clip.start);
    first = video.times.empty() ? std::ceil(start * video.fps)
                                : FramesBefore(video, start);
  }
  if (clip.end.has_value()) {
    const double end = clamped(*clip.end);
    // The frame before the first one that is later.
    const double at = video.times.empty()
                          ? std::floor(end * video.fps)
                          : FramesBefore(video, end + 1.0 / kTimesASecond) - 1;
    last = std::min(last, at);
  }
  if ((clip.start.has_value() || clip.end.has_value()) && !(first < last)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the clip from frame ", first, " to ", last, " of a video of ", longest,
        " s has no two frames; is it given in seconds?"));
  }
  return FrameRange{static_cast<uint32_t>(first), static_cast<uint32_t>(last)};
}

double FloorEven(double value) { return std::floor(value / 2) * 2; }
double CeilEven(double value) { return std::ceil(value / 2) * 2; }

absl::StatusOr<std::vector<uint32_t>> SampleQwenUtils(const VideoModel& model,
                                                      double fps,
                                                      FrameRange range) {
  const double total = range.count();
  const double min_frames = CeilEven(Or(model.min_frames, kMinFrames));
  const double max_frames =
      FloorEven(model.max_frames != 0 ? model.max_frames
                                      : std::min<double>(kMaxFrames, total));
  double count = total / fps * GetFps(model);
  count = std::min(std::min(std::max(count, min_frames), max_frames), total);
  count = FloorEven(count);
  if (count < 2 || count > total) return TooFew(model, count, total);
  return TorchLinspace(range.first, range.last, static_cast<uint32_t>(count));
}

absl::StatusOr<std::vector<uint32_t>> SampleQwen2Class(
    const VideoModel& model, const VideoLength& video) {
  const double total = video.frames;
  const double max_frames =
      FloorEven(std::min<double>(Or(model.max_frames, kMaxFrames), total));
  double count = total / video.fps * GetFps(model);
  count = std::min({std::max<double>(count, Or(model.min_frames, kMinFrames)),
                    max_frames, total});
  count = FloorEven(count);
  if (count < 1 || count > total) return TooFew(model, count, total);
  return TorchArange(0, total, total / count);
}

absl::StatusOr<std::vector<uint32_t>> SampleQwen3Class(
    const VideoModel& model, const VideoLength& video) {
  const double total = video.frames;
  double count = std::trunc(total / video.fps * GetFps(model));
  count = std::min<double>(
      {std::max<double>(count, Or(model.min_frames, kMinFrames)),
       static_cast<double>(Or(model.max_frames, kMaxFrames)), total});
  // Its smart_resize refuses fewer.
  if (count < model.temporal) return TooFew(model, count, total);
  std::vector<uint32_t> frames;
  for (const double value :
       NumpyLinspace(total - 1, static_cast<uint32_t>(count))) {
    frames.push_back(static_cast<uint32_t>(std::nearbyint(value)));
  }
  return frames;
}

// LLaVA-NeXT's, with its times: where it takes each n-th frame it divides the
// frame's number by n, which is a second only at 1 frame a second.
absl::Status SampleLlava(const VideoModel& model, const VideoLength& video,
                         SampledFrames* sampled) {
  // round() of Python: half to even.
  const double every = std::nearbyint(video.fps / GetFps(model, kLlavaFps));
  if (every < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        model.name, " takes each round(", video.fps, " / ",
        GetFps(model, kLlavaFps),
        ")-th frame, which is not a frame; lower fps, or leave the video out"));
  }
  const double total = video.frames;
  const double count = std::ceil(total / every);
  const bool is_bounded = model.max_frames != 0;
  if (!is_bounded || (count <= model.max_frames && !model.force_sample)) {
    for (double at = 0; at < total; at += every) {
      sampled->frames.push_back(static_cast<uint32_t>(at));
      sampled->told_seconds.push_back(at / every);
    }
    return absl::OkStatus();
  }
  if (model.max_frames > std::max(video.frames, kMaxForcedFrames)) {
    return absl::InvalidArgumentError(absl::StrCat(
        model.name, " with force_sample would sample ", model.max_frames,
        " of ", video.frames, " frames; wanted max_frames of at most ",
        kMaxForcedFrames));
  }
  for (const double value : NumpyLinspace(total - 1, model.max_frames)) {
    sampled->frames.push_back(static_cast<uint32_t>(value));
    sampled->told_seconds.push_back(video.seconds(sampled->frames.back()) -
                                    video.seconds(0));
  }
  return absl::OkStatus();
}

// As transformers' processors without a rule of their own.
absl::StatusOr<std::vector<uint32_t>> SampleEvenly(const VideoModel& model,
                                                   const VideoLength& video) {
  const uint64_t total = video.frames;
  const double wanted =
      std::max(1.0, std::trunc(video.frames / video.fps * GetFps(model)));
  const uint64_t count = static_cast<uint64_t>(
      std::min<double>(wanted, Or(model.max_frames, UINT32_MAX)));
  if (count > total) return TooFew(model, wanted, video.frames);
  std::vector<uint32_t> frames;
  for (uint64_t i = 0; i < count; ++i) {
    frames.push_back(static_cast<uint32_t>(i * total / count));
  }
  return frames;
}

absl::StatusOr<std::vector<uint32_t>> SampleInternClass(
    const VideoModel& model, const VideoLength& video) {
  const double total = video.frames;
  double count = std::trunc(total / video.fps * GetFps(model));
  if (model.max_frames != 0) count = std::min<double>(count, model.max_frames);
  if (count < 1 || count > total) return TooFew(model, count, total);
  return TorchArange(total / count / 2, total, total / count);
}

// splitmix64: the same numbers everywhere.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// One frame of each of equal intervals, whose number is drawn, too.
std::vector<uint32_t> SampleIntern(const VideoModel& model, FrameRange range,
                                   uint64_t seed) {
  const uint32_t least = Or(model.min_frames, kInternMinFrames);
  const uint32_t most = std::max(least, Or(model.max_frames, kInternMaxFrames));
  uint64_t state = seed;
  const auto wanted = static_cast<uint32_t>(
      least + NextRandom(&state) % (uint64_t{most} - least + 1));
  const uint32_t count = std::min(wanted, range.count());
  std::vector<uint32_t> frames;
  const std::vector<double> bounds = NumpyLinspace(range.count(), count + 1);
  for (uint32_t i = 0; i < count; ++i) {
    const auto from = static_cast<uint32_t>(bounds[i]);
    const auto to = static_cast<uint32_t>(bounds[i + 1]);
    frames.push_back(
        range.first + from +
        static_cast<uint32_t>(NextRandom(&state) % std::max(1u, to - from)));
  }
  frames.resize(wanted, frames.back());
  return frames;
}

}  // namespace

absl::StatusOr<SampledFrames> SampleFrames(const VideoModel& model,
                                           const VideoLength& video,
                                           const VideoClip& clip,
                                           uint64_t seed) {
  BALLAST_ASSIGN_OR_RETURN(const FrameRange range, GetRange(video, clip));
  SampledFrames sampled;
  sampled.clip_frames = range.count();
  // transformers has no clips: a clip is a separate video.
  const VideoLength length = CutOut(video, range);
  sampled.clip_fps = length.fps;
  const bool is_own = model.sampling == VideoSampling::kOwn;
  absl::StatusOr<std::vector<uint32_t>> frames;
  bool is_relative = true;
  if (model.rule == VideoRule::kOneVision) {
    frames = SampleEvenly(model, length);
  } else if (model.rule == VideoRule::kLlava && is_own) {
    // It has no clips, either.
    BALLAST_RETURN_IF_ERROR(SampleLlava(model, length, &sampled));
    frames = std::move(sampled.frames);
  } else if (is_own) {
    is_relative = false;
    frames = model.rule == VideoRule::kInternVl
                 ? SampleIntern(model, range, seed)
                 : SampleQwenUtils(model, length.fps, range);
  } else {
    frames = model.rule == VideoRule::kQwen2   ? SampleQwen2Class(model, length)
             : model.rule == VideoRule::kQwen3 ? SampleQwen3Class(model, length)
             : model.rule == VideoRule::kInternVl
                 ? SampleInternClass(model, length)
                 : SampleEvenly(model, length);
  }
  if (!frames.ok()) return frames.status();
  sampled.frames = *std::move(frames);
  if (is_relative) {
    for (uint32_t& frame : sampled.frames) frame += range.first;
  }
  // torch.arange may end with a frame that the video does not have.
  while (sampled.frames.back() > range.last) sampled.frames.pop_back();
  return sampled;
}

namespace {

// In tokens.
constexpr uint64_t kMinFrameTokens = 128;
constexpr uint64_t kMaxFrameTokens = 768;
constexpr uint64_t kContextTokens = 128000;
constexpr double kContextShare = 0.9;
// At least this much above the smallest frame, whatever the total says.
constexpr double kFloor = 1.05;
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

// `smart` is of a video of height*width.
absl::StatusOr<TileShape> ResizeWithin(uint32_t height, uint32_t width,
                                       const SmartSize& smart) {
  if (smart.IsTooLong()) {
    return Refused(height, width, "wanted sides in a ratio of at most 200");
  }
  const auto [out_h, out_w] = smart.Resize();
  return Sized(height, width, out_h, out_w);
}

// smart_resize of qwen-vl-utils.
absl::StatusOr<TileShape> UtilsResize(uint32_t height, uint32_t width,
                                      double factor, double min_pixels,
                                      double max_pixels) {
  BALLAST_RETURN_IF_ERROR(CheckLimits(min_pixels, max_pixels));
  SmartSize smart(height, width, factor, min_pixels, max_pixels);
  smart.least = factor;
  return ResizeWithin(height, width, smart);
}

// smart_resize of transformers' Qwen3-VL: its budget is for all frames.
absl::StatusOr<TileShape> Qwen3Resize(uint32_t height, uint32_t width,
                                      double frames, double temporal,
                                      double factor, double min_pixels,
                                      double max_pixels) {
  if (frames < temporal) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a video of ", frames, " frames; wanted at least ", temporal));
  }
  SmartSize smart(height, width, factor, min_pixels, max_pixels);
  smart.frames = frames;
  smart.counted_frames = std::nearbyint(frames / temporal) * temporal;
  smart.least_shrunk = factor;
  smart.Enlarge();
  return ResizeWithin(height, width, smart);
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

// Adds the times of temporal patches of frames `numbers`.
void AddSeconds(const VideoModel& model, const std::vector<uint32_t>& numbers,
                const VideoLength& video, VideoPlan* plan) {
  for (size_t i = 0; i < numbers.size(); i += model.temporal) {
    // The last frame is repeated to fill a patch.
    const size_t last =
        std::min<size_t>(i + model.temporal, numbers.size()) - 1;
    plan->seconds.push_back(
        (video.seconds(numbers[i]) + video.seconds(numbers[last])) / 2);
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
    plan.told_length = sampled.clip_frames / sampled.clip_fps;
    plan.told_seconds = std::move(sampled.told_seconds);
  }
  // As both libraries do, in their order of operations.
  const double sampled_fps = static_cast<double>(plan.frames.size()) /
                             std::max<double>(sampled.clip_frames, 1e-6) *
                             sampled.clip_fps;
  plan.seconds_per_patch = model.temporal / sampled_fps;
  AddSeconds(model, plan.frames, video, &plan);
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
  AddSeconds(model, times, {count, fps}, &plan);
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
