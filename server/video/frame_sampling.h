#ifndef BALLAST_SERVER_VIDEO_FRAME_SAMPLING_H_
#define BALLAST_SERVER_VIDEO_FRAME_SAMPLING_H_

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

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_FRAME_SAMPLING_H_
