#ifndef BALLAST_SERVER_MEDIA_AUDIO_AUDIO_IN_VIDEO_H_
#define BALLAST_SERVER_MEDIA_AUDIO_AUDIO_IN_VIDEO_H_

#include <cstdint>
#include <vector>

#include "proto/audio_family.pb.h"

namespace ballast {

// A video whose audio is read with it.
struct AudioInVideo {
  uint32_t grid_t = 0;  // patches in time
  uint32_t grid_h = 0;  // tokens, thus patches / merge
  uint32_t grid_w = 0;
  double seconds_per_grid = 0;
  uint64_t audio_tokens = 0;
};

// Tokens of one kind in a row.
struct AudioInVideoRun {
  bool is_audio = false;
  uint64_t tokens = 0;
};

// The order of the tokens of a video and its audio, between the marks
// <vision_start><audio_start> and <audio_end><vision_end>: as the processor
// writes it, in float64. Pure. `rule` is set.
std::vector<AudioInVideoRun> OrderAudioInVideo(
    const v1::AudioFamily::InVideo& rule, const AudioInVideo& video);

// Positions of these tokens and of the two marks before and the two after them,
// as the model computes them where it agrees with the processor about the order
// of tokens: time, row and column of each, from `start` on. By RULE_CHUNKS they
// are whole numbers; by RULE_MERGE times of the video are not, and are float32
// like the model's. Text goes on at the last position + 1. Pure.
struct AudioInVideoPositions {
  std::vector<float> time;
  std::vector<float> row;
  std::vector<float> column;
};
AudioInVideoPositions PlaceAudioInVideo(const v1::AudioFamily::InVideo& rule,
                                        const AudioInVideo& video, float start);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_AUDIO_IN_VIDEO_H_
