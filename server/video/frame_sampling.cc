#include "server/video/frame_sampling.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

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

absl::StatusOr<FrameRange> GetRange(const VideoLength& video,
                                    const VideoClip& clip) {
  if (video.frames == 0 || !(video.fps > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a video of ", video.frames, " frames at ", video.fps,
                     " frames a second; wanted at least 1, above 0"));
  }
  FrameRange range = {0, video.frames - 1};
  const double longest = video.frames / video.fps;
  const auto clamped = [&](double t) {
    return std::max(0.0, std::min(t, longest));
  };
  double first = 0;
  double last = range.last;
  if (clip.start.has_value()) {
    first = std::ceil(clamped(*clip.start) * video.fps);
  }
  if (clip.end.has_value()) {
    last = std::min(last, std::floor(clamped(*clip.end) * video.fps));
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
                                                      const VideoLength& video,
                                                      FrameRange range) {
  const double total = range.count();
  const double min_frames = CeilEven(Or(model.min_frames, kMinFrames));
  const double max_frames =
      FloorEven(model.max_frames != 0 ? model.max_frames
                                      : std::min<double>(kMaxFrames, total));
  double count = total / video.fps * GetFps(model);
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
        ")-th frame, which is none; lower fps, or leave the video out"));
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
    sampled->told_seconds.push_back(sampled->frames.back() / video.fps);
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
  // transformers has no clips: a clip is a video of its own.
  const VideoLength length = {range.count(), video.fps};
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
                 : SampleQwenUtils(model, video, range);
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

}  // namespace ballast
