#ifndef BALLAST_SERVER_COMMAND_INSPECT_VIDEO_H_
#define BALLAST_SERVER_COMMAND_INSPECT_VIDEO_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/command_line.h"
#include "proto/image/resample_weights.h"
#include "server/video/frame_sampling.h"
#include "server/video/video_model.h"

namespace ballast {

// How `inspect video` reads videos.
struct InspectVideoOptions {
  VideoModel model;
  VideoClip clip;
  // Where frames are drawn; empty: that of a job, from the video's facts.
  std::optional<uint64_t> seed;
  ResampleLibrary library = ResampleLibrary::kPillow12;
  bool apply_rotation = true;
  // False: plans alone, `frames_sha256` is left out.
  bool decode = true;
};

// Adds `inspect video` to `inspect`.
void AddInspectVideo(CommandLine* line, Command* inspect);

// Writes one JSON object a line for each video, in order: {file, container,
// codec, width, height, rotation, frames, fps, seconds_in_header,
// variable_rate, scan, key_frames, sampled, packets_to_decode, resized_h,
// resized_w, grid_thw, video_tokens, seconds, second_per_grid_ts,
// frames_sha256}, or {file, error}. A folder stands for a video whose frames
// are its images (JPEG, PNG, WebP), by name, all of which are used. Errors:
// INVALID_ARGUMENT after all files, with how many of them failed; UNAVAILABLE
// at once if `out` fails.
absl::Status InspectVideos(const InspectVideoOptions& options,
                           absl::Span<const std::string> files,
                           std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_VIDEO_H_
