#ifndef BALLAST_SERVER_VIDEO_VIDEO_PLAN_H_
#define BALLAST_SERVER_VIDEO_VIDEO_PLAN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/video/video_model.h"

namespace ballast {

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
};

struct SampledFrames {
  // Ascending; InternVL and short videos may repeat some.
  std::vector<uint32_t> frames;
  // Of the clip that was sampled.
  uint32_t clip_frames = 0;
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
  // What LLaVA-Video's sentence of times tells: the length of the clip and the
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
// that of transformers). `frames` repeats the last where qwen-vl-utils does, in
// pairs. Errors: as PlanVideo.
absl::StatusOr<VideoPlan> PlanFrameList(const VideoModel& model, uint32_t count,
                                        double fps, uint32_t height,
                                        uint32_t width);

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_VIDEO_PLAN_H_
