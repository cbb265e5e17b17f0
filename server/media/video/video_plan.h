#ifndef BALLAST_SERVER_MEDIA_VIDEO_VIDEO_PLAN_H_
#define BALLAST_SERVER_MEDIA_VIDEO_VIDEO_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/media/video/frame_table.h"

namespace ballast {

// Whose rule samples and resizes: the two do not agree for one model.
enum class VideoSampling {
  // The model's own training code: qwen-vl-utils 0.0.14 for Qwen, LLaVA-NeXT's
  // for LLaVA-Video, InternVL's for InternVL. LLaVA-OneVision has no own.
  kOwn,
  // The video processor of transformers 5.23.
  kTransformers,
};

enum class VideoRule {
  kQwen2,      // Qwen2-VL, Qwen2.5-VL
  kQwen3,      // Qwen3-VL, Qwen3.5
  kLlava,      // LLaVA-Video
  kOneVision,  // LLaVA-OneVision
  kInternVl,
};

// How LLaVA-Video's model pools the patches of a frame: bilinear rounds half
// their number up, the others (average, max) down.
enum class VideoPool { kBilinear, kWindows };

// Where LLaVA-Video's model puts newlines: after each row of a frame, each
// frame, the video, or nowhere.
enum class VideoNewline { kRow, kFrame, kVideo, kNone };

// A model's rule for videos and its numbers. 0 in `fps` or in a bound of frames
// or pixels means the rule's default: SampleFrames, PlanVideo and PlanFrameList
// fill it in.
struct VideoModel {
  std::string name;  // for messages
  VideoRule rule = VideoRule::kQwen2;
  VideoSampling sampling = VideoSampling::kOwn;

  double fps = 0;           // frames sampled a second of video
  uint32_t min_frames = 0;  // sampled
  uint32_t max_frames = 0;
  uint64_t min_pixels = 0;  // of a frame; Qwen3 by transformers: of all frames
  uint64_t max_pixels = 0;  // likewise
  uint64_t total_pixels = 0;  // of all frames, by qwen-vl-utils
  // Also bounds a frame by its share of the total, as qwen-vl-utils does.
  // transformers' option of that name; it is off there unless set.
  bool cap_pixels_per_frame = false;

  uint32_t patch = 0;         // side, in pixels
  uint32_t merge = 1;         // patches on a side that merge into one token
  uint32_t temporal = 1;      // frames that a patch spans
  uint32_t side = 0;          // of a square frame; 0: the rule decides
  uint32_t frame_tokens = 0;  // of such a frame
  uint32_t end_tokens = 0;    // after the frames of a video
  // Whether the model takes frames as it takes an image's tiles, among them and
  // without their times (InternVL).
  bool frames_are_crops = false;
  // Whether positions of temporal patches follow their seconds (Qwen2.5-VL).
  bool has_seconds = false;
  // Then positions a second, as the model's audio has them (Qwen2.5-Omni,
  // Qwen3-Omni); 0: Qwen2.5-VL's.
  uint32_t ids_per_second = 0;

  // LLaVA-Video: whether max_frames are sampled of shorter videos, too, and
  // whether a sentence gives the times of frames.
  bool force_sample = false;
  bool tells_times = false;
};

// The stretch of a video that a sample uses, in seconds; empty: from the first
// frame, to the last.
struct VideoClip {
  std::optional<double> start;
  std::optional<double> end;
};

// A video as sampling sees it.
struct VideoLength {
  uint32_t frames = 0;
  double fps = 0;  // on average, above 0
  // Of a video of variable rate (VideoFacts::times), and then `fps` means
  // nothing: the rate of a stretch is that of its frames over their time.
  absl::Span<const uint32_t> times = {};

  // When a frame begins, after the first.
  double seconds(uint32_t frame) const {
    return times.empty() ? frame / fps
                         : static_cast<double>(times[frame]) / kTimesASecond;
  }
};

struct SampledFrames {
  // Ascending; InternVL and short videos may repeat some.
  std::vector<uint32_t> frames;
  // Of the clip that was sampled.
  uint32_t clip_frames = 0;
  double clip_fps = 0;
  // Of LLaVA-Video: the time of each frame as its training code computes it.
  std::vector<double> told_seconds;
};

// The frames that the model sees: a pure function of numbers, with the
// operations of the Python code in their order, so that every value is rounded
// alike. `seed` decides among the frames of an interval (InternVL's own rule).
// Errors: INVALID_ARGUMENT for a video that the Python code refuses (too few
// frames) and for a clip without two frames.
absl::StatusOr<SampledFrames> SampleFrames(const VideoModel& model,
                                           const VideoLength& video,
                                           const VideoClip& clip,
                                           uint64_t seed);

// What a model makes of a video, before a frame is decoded.
struct VideoPlan {
  std::vector<uint32_t> frames;  // sampled, ascending
  uint32_t height = 0;           // of a resized frame
  uint32_t width = 0;
  // Temporal patches, and patches on the sides of a frame. For models of square
  // frames, temporal patches are frames.
  uint32_t grid_t = 0;
  uint32_t grid_h = 0;
  uint32_t grid_w = 0;
  // Placeholders in the text: the tokens that features replace.
  uint64_t tokens = 0;
  // Of each temporal patch: the mean time of its first and last frame.
  std::vector<double> seconds;
  // LLaVA-Video's sentence of times: the length of the clip and the
  // time of each frame, in its arithmetic. Empty: there is no sentence.
  double told_length = 0;
  std::vector<double> told_seconds;
  // Between temporal patches, for MRoPE (`second_per_grid_ts`).
  double seconds_per_patch = 0;
  // qwen-vl-utils resizes the pictures of a list twice: first as images, with
  // Pillow, to this size. 0: once, as all other frames.
  uint32_t first_height = 0;
  uint32_t first_width = 0;
};

// Plans a video of `height` x `width` pixels, as shown: the same on every
// machine. Errors: INVALID_ARGUMENT for a video that the model's Python code
// refuses (too few frames, sides in a ratio above 200), and for limits that
// contradict each other.
absl::StatusOr<VideoPlan> PlanVideo(const VideoModel& model,
                                    const VideoLength& video, uint32_t height,
                                    uint32_t width, const VideoClip& clip = {},
                                    uint64_t seed = 0);

// Plans a video given as `count` pictures of one size, all of which are used,
// that were taken `fps` a second (0: 2, the default of qwen-vl-utils, or 24,
// the default of transformers). `frames` repeats the last where qwen-vl-utils
// does, in pairs. Errors: as PlanVideo.
absl::StatusOr<VideoPlan> PlanFrameList(const VideoModel& model, uint32_t count,
                                        double fps, uint32_t height,
                                        uint32_t width);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_VIDEO_VIDEO_PLAN_H_
