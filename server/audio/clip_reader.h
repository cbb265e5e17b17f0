#ifndef BALLAST_SERVER_AUDIO_CLIP_READER_H_
#define BALLAST_SERVER_AUDIO_CLIP_READER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/loan_pool.h"
#include "proto/audio_family.pb.h"
#include "server/audio/audio_reader.h"
#include "server/audio/indexed_clip.h"
#include "server/corpus/raw_video.h"

namespace ballast {

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
  absl::StatusOr<IndexedVideo> ReadFacts(const RawVideo& file,
                                         bool in_video = false);

  // Decodes the samples of plan.range. Errors: as AudioReader::ReadSamples;
  // UNAVAILABLE (the file changed meanwhile).
  absl::StatusOr<std::vector<float>> ReadSamples(const RawVideo& file,
                                                 const IndexedVideo& clip,
                                                 const ClipPlan& plan);

  // Writes plan.rows rows of features of them to `out`. Errors: as ReadSamples
  // and LogMel::Create.
  absl::Status ReadFeatures(const RawVideo& file, const IndexedVideo& clip,
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

#endif  // BALLAST_SERVER_AUDIO_CLIP_READER_H_
