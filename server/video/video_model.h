#ifndef BALLAST_SERVER_VIDEO_VIDEO_MODEL_H_
#define BALLAST_SERVER_VIDEO_VIDEO_MODEL_H_

#include <cstdint>
#include <string>

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

// A model as far as videos go. Every limit can be changed; 0, or an empty
// optional, stands for the default of the rule, which PlanVideo resolves.
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
  uint32_t end_tokens = 0;    // behind the frames of a video
  // Whether the model takes frames as it takes an image's tiles, among them and
  // without their times (InternVL).
  bool frames_are_crops = false;
  // Whether positions of temporal patches follow their seconds (Qwen2.5-VL).
  bool has_seconds = false;
  // Then positions a second, as the model's audio has them (Qwen2.5-Omni,
  // Qwen3-Omni); 0: Qwen2.5-VL's.
  uint32_t ids_per_second = 0;

  // LLaVA-Video: whether max_frames are sampled of shorter videos, too, and
  // whether a sentence tells the times of frames.
  bool force_sample = false;
  bool tells_times = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_VIDEO_VIDEO_MODEL_H_
