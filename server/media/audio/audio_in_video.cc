#include "server/media/audio/audio_in_video.h"

#include <algorithm>

namespace ballast {
namespace {

using InVideo = v1::AudioFamily::InVideo;

// The times of a track's tokens, in position ids.
class Track {
 public:
  Track(bool is_audio, const InVideo& rule, const AudioInVideo& video)
      : is_audio_(is_audio),
        patch_(uint64_t{video.grid_h} * video.grid_w),
        seconds_(video.seconds_per_grid),
        ids_(rule.ids_per_second()),
        tokens_(is_audio ? video.audio_tokens : video.grid_t * patch_) {}

  bool is_audio() const { return is_audio_; }
  uint64_t tokens() const { return tokens_; }
  double GetTime(uint64_t token) const {
    if (is_audio_) return static_cast<double>(token);
    return static_cast<double>(token / patch_) * seconds_ * ids_;
  }

 private:
  const bool is_audio_;
  const uint64_t patch_;  // tokens of one time
  const double seconds_;
  const double ids_;
  const uint64_t tokens_;
};

void Append(const Track& track, uint64_t tokens,
            std::vector<AudioInVideoRun>* runs) {
  if (tokens == 0) return;
  if (runs->empty() || runs->back().is_audio != track.is_audio()) {
    runs->push_back({track.is_audio(), 0});
  }
  runs->back().tokens += tokens;
}

std::vector<AudioInVideoRun> Merge(const Track& pictures, const Track& audio) {
  std::vector<AudioInVideoRun> runs;
  uint64_t picture = 0;
  uint64_t heard = 0;
  while (picture < pictures.tokens() && heard < audio.tokens()) {
    if (pictures.GetTime(picture) <= audio.GetTime(heard)) {
      Append(pictures, 1, &runs);
      ++picture;
    } else {
      Append(audio, 1, &runs);
      ++heard;
    }
  }
  Append(pictures, pictures.tokens() - picture, &runs);
  Append(audio, audio.tokens() - heard, &runs);
  return runs;
}

// Tokens of each chunk. A token begins at most one, as in the processor: after
// a gap of several chunks those that are late hold one token each.
std::vector<uint64_t> ChunkSizes(const Track& track, double ids) {
  std::vector<uint64_t> sizes(1);
  for (uint64_t i = 0; i < track.tokens(); ++i) {
    if (track.GetTime(i) >= static_cast<double>(sizes.size()) * ids) {
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  return sizes;
}

}  // namespace

std::vector<AudioInVideoRun> OrderAudioInVideo(const InVideo& rule,
                                               const AudioInVideo& video) {
  const Track pictures(false, rule, video);
  const Track audio(true, rule, video);
  if (rule.rule() == InVideo::RULE_MERGE) return Merge(pictures, audio);
  const double ids = rule.ids_per_second() * rule.seconds_per_chunk();
  const std::vector<uint64_t> seen = ChunkSizes(pictures, ids);
  const std::vector<uint64_t> heard = ChunkSizes(audio, ids);
  std::vector<AudioInVideoRun> runs;
  for (size_t i = 0; i < std::max(seen.size(), heard.size()); ++i) {
    if (i < seen.size()) Append(pictures, seen[i], &runs);
    if (i < heard.size()) Append(audio, heard[i], &runs);
  }
  return runs;
}

AudioInVideoPositions PlaceAudioInVideo(const InVideo& rule,
                                        const AudioInVideo& video,
                                        float start) {
  const bool is_merged = rule.rule() == InVideo::RULE_MERGE;
  AudioInVideoPositions places;
  const auto put = [&](float time, float row, float column) {
    places.time.push_back(time);
    places.row.push_back(row);
    places.column.push_back(column);
  };
  // By RULE_CHUNKS two marks share a position.
  const auto put_marks = [&](float at) {
    put(at, at, at);
    if (is_merged) ++at;
    put(at, at, at);
    return at + 1;
  };
  const float origin = put_marks(start);
  const uint64_t patch = uint64_t{video.grid_h} * video.grid_w;
  uint64_t picture = 0;
  uint64_t audio = 0;
  float last = origin;  // the largest position of the last run
  for (const AudioInVideoRun& run : OrderAudioInVideo(rule, video)) {
    last = origin;
    for (uint64_t i = 0; i < run.tokens; ++i) {
      const size_t at = places.time.size();
      if (run.is_audio) {
        const float time = origin + static_cast<float>(audio++);
        put(time, time, time);
      } else {
        // In float32, as the model computes it.
        float time = static_cast<float>(picture / patch) *
                     static_cast<float>(video.seconds_per_grid) *
                     static_cast<float>(rule.ids_per_second());
        if (!is_merged) time = static_cast<float>(static_cast<int64_t>(time));
        const uint64_t cell = picture++ % patch;
        put(origin + time, origin + static_cast<float>(cell / video.grid_w),
            origin + static_cast<float>(cell % video.grid_w));
      }
      last =
          std::max({last, places.time[at], places.row[at], places.column[at]});
    }
  }
  put_marks(last + 1);
  return places;
}

}  // namespace ballast
