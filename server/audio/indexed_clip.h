#ifndef BALLAST_SERVER_AUDIO_INDEXED_CLIP_H_
#define BALLAST_SERVER_AUDIO_INDEXED_CLIP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/audio_family.pb.h"
#include "proto/job.pb.h"
#include "server/audio/audio_plan.h"
#include "server/audio/audio_reader.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// Clips of audio in an index: an IndexedVideo with kIsAudio, whose `fps` are
// the stream's samples a second, `frames` its samples of each channel,
// `key_frames` its channels and `codec` its format; `width` and `height` are 1.

// The facts of a file, without a clip's start and end. Errors: a data fault
// (more samples than 32 bits count).
absl::StatusOr<IndexedVideo> ToIndexedClip(const AudioFacts& facts);

// The facts that ToIndexedClip stored.
AudioFacts GetAudioFacts(const IndexedVideo& clip);

// What a model makes of an indexed clip.
struct ClipPlan {
  SampleRange range;  // of the file, that are read
  AudioPlan plan;     // of these
  uint32_t rows = 0;  // of features that travel; the first `frames` count
  uint32_t frames = 0;
};

// Pure. Errors: data faults (as CutClip and PlanAudio; no frame or no token; a
// clip of more than kMaxClipSamples).
absl::StatusOr<ClipPlan> PlanIndexedClip(const v1::AudioFamily& family,
                                         const IndexedVideo& clip);

// The form of clips in blocks and batches.
v1::Job::ClipShape GetClipShape(const v1::AudioFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_AUDIO_INDEXED_CLIP_H_
