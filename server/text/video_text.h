#ifndef BALLAST_SERVER_TEXT_VIDEO_TEXT_H_
#define BALLAST_SERVER_TEXT_VIDEO_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/text/positions.h"
#include "server/video/video_model.h"
#include "server/video/video_plan.h"

namespace ballast {

// What stands for a video in the text: runs of placeholders, each between
// vision start and vision end. Qwen2's and Qwen2.5's is one run; Qwen3's is one
// a temporal patch, each after its time, as "<0.8 seconds>"; InternVL's is one
// a frame, after its number, as "Frame1: ", on a line of its own;
// LLaVA-OneVision's is one run of pooled frames and a newline, LLaVA-Video's
// one run of pooled frames and their newlines.
struct VideoText {
  uint32_t runs = 1;
  uint32_t run_tokens = 0;  // placeholders of each run
  // Before each run; empty: nothing.
  std::vector<std::string> before;
  // LLaVA-Video: what tells the times of its frames, behind the run and a line
  // feed; empty: nothing.
  std::string times = "";
};

// The text of a planned video, as the processor of `rule` writes it.
VideoText TextOfVideo(VideoRule rule, const VideoPlan& plan, uint32_t merge);

// Appends the placeholders of each run of the videos to those of the images.
void AppendRuns(absl::Span<const VideoText> videos,
                std::vector<uint32_t>* placeholders);

// Appends the grids of the video's runs, for ComputePositions: of one run with
// the positions between temporal patches, or one of t = 1 a run. Qwen2.5
// has 2 positions a second, Qwen2 one a temporal patch.
void AppendGrids(const VideoModel& video, const VideoPlan& plan,
                 std::vector<GridThw>* grids);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_VIDEO_TEXT_H_
