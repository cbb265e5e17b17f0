#ifndef BALLAST_SERVER_MEDIA_AUDIO_AUDIO_PLAN_H_
#define BALLAST_SERVER_MEDIA_AUDIO_AUDIO_PLAN_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/audio_family.pb.h"
#include "server/media/audio/decoder/decoder_protocol.h"

namespace ballast {

// A year; more than any file holds.
inline constexpr uint64_t kMaxAudioSamples = uint64_t{1} << 39;

// A part of a file, in seconds.
struct AudioClip {
  std::optional<double> start;  // default: the file's
  std::optional<double> end;    // default: the file's
};

// A part of a file, in samples at kModelRate.
struct SampleRange {
  uint64_t first = 0;
  uint64_t samples = 0;
};

// The samples int(16000 * start) up to int(16000 * end) of a file that has
// `samples`; an end beyond the file's is the file's. Pure. Errors: data faults
// (times that are negative, no numbers, or leave no sample).
absl::StatusOr<SampleRange> CutClip(const AudioClip& clip, uint64_t samples);

// What a model makes of a clip. Counts are of the clip alone, whatever else is
// in its batch.
struct AudioPlan {
  uint64_t samples = 0;  // those that the extractor reads
  uint64_t padded = 0;   // with the zeros that follow
  uint64_t rows = 0;     // before they are stacked
  uint64_t shape = 0;    // frames of the processor's tensor
  uint64_t frames = 0;   // those that count
  uint64_t tokens = 0;
};

// Plans a clip of `samples` samples. Pure. Errors: a data fault (fewer samples
// than the model takes, more than kMaxAudioSamples).
absl::StatusOr<AudioPlan> PlanAudio(const v1::AudioFamily& family,
                                    uint64_t samples);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_AUDIO_PLAN_H_
