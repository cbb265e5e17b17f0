#ifndef BALLAST_SERVER_MODEL_INDEXED_CLIP_H_
#define BALLAST_SERVER_MODEL_INDEXED_CLIP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/loan_pool.h"
#include "proto/audio_family.pb.h"
#include "proto/job.pb.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/audio/audio_reader.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

// Clips of audio in an index: StreamFacts of kind kAudio, whose `codec` is the
// file's format.

// The facts of a file, without a clip's start and end. Errors: a data fault
// (more samples than 32 bits count).
absl::StatusOr<StreamFacts> ToIndexedClip(const AudioFacts& facts);

// The facts that ToIndexedClip stored.
AudioFacts GetAudioFacts(const StreamFacts& clip);

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
                                         const StreamFacts& clip);

// The form of clips in blocks and batches.
v1::Job::ClipShape GetClipShape(const v1::AudioFamily& family);

// Reads the facts of audio for indexes, and makes features of clips, in
// processes (AudioReader) that threads share. Thread-safe; calls block.
class ClipReader {
 public:
  // At most `processes` files are read at a time; no process is started before
  // the first. `family`, the model's, is not owned and may be null: no features
  // are made then.
  ClipReader(int processes, const v1::AudioFamily* family,
             const AudioReader::Options& options = {});
  ~ClipReader();

  // `in_video`: of the audio of a video. Errors: as AudioReader::ReadFacts and
  // ToIndexedClip; UNAVAILABLE (the file changed meanwhile).
  absl::StatusOr<StreamFacts> ReadFacts(const RawMedium& file,
                                        bool in_video = false);

  // Decodes the samples of plan.range. Errors: as AudioReader::ReadSamples;
  // UNAVAILABLE (the file changed meanwhile).
  absl::StatusOr<std::vector<float>> ReadSamples(const RawMedium& file,
                                                 const StreamFacts& clip,
                                                 const ClipPlan& plan);

  // Writes plan.rows rows of features of them to `out`. Errors: as ReadSamples
  // and LogMel::Create.
  absl::Status ReadFeatures(const RawMedium& file, const StreamFacts& clip,
                            const ClipPlan& plan, absl::Span<float> out);

 private:
  struct Worker;
  using Workers = LoanPool<Worker>;

  const v1::AudioFamily* const family_;
  Workers workers_;
};

// Memory that making features takes, in its process and here: an estimate.
uint64_t ClipDecodeBytes(const ClipPlan& plan, uint32_t width);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_INDEXED_CLIP_H_
