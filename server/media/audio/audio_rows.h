#ifndef BALLAST_SERVER_MEDIA_AUDIO_AUDIO_ROWS_H_
#define BALLAST_SERVER_MEDIA_AUDIO_AUDIO_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/loan_pool.h"
#include "proto/audio_family.pb.h"
#include "proto/job.pb.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/audio/audio_reader.h"
#include "server/media/rows_rule.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

// Audio as a kind of media: facts of a file, the model's plan of a clip, and
// its features as rows.

// A clip's row of an index, in place of StreamFacts. Little-endian.
struct AudioInIndex {
  double rate;      // samples a second
  double unused;    // 0
  double start;     // as StreamFacts
  double end;       // likewise
  uint32_t frames;  // samples of each channel
  uint32_t one[2];  // 1
  uint32_t zero;
  uint32_t channels;
  uint32_t flags;   // as StreamFacts
  char format[16];  // AudioFormatName, and zeros
};
static_assert(sizeof(AudioInIndex) == sizeof(StreamFacts));

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
class ClipReader : public RowsReader {
 public:
  // At most `processes` files are read at a time; no process is started before
  // the first. `family`, the model's, is not owned and may be null: no features
  // are made then.
  ClipReader(int processes, const v1::AudioFamily* family,
             const AudioReader::Options& options = {});
  ~ClipReader() override;

  // Errors: as AudioReader::ReadFacts and ToIndexedClip; UNAVAILABLE (the file
  // changed meanwhile).
  absl::StatusOr<StreamFacts> ReadFacts(const RawMedium& file,
                                        bool in_video = false) override;

  // Decodes the samples of plan.range. Errors: as AudioReader::ReadSamples;
  // UNAVAILABLE (the file changed meanwhile).
  absl::StatusOr<std::vector<float>> ReadSamples(const RawMedium& file,
                                                 const StreamFacts& clip,
                                                 const ClipPlan& plan);

  // Errors: as ReadSamples, PlanIndexedClip and LogMel::Create.
  absl::Status Write(const RawMedium& file, const StreamFacts& clip,
                     absl::Span<float> out) override;

 private:
  struct Worker;
  using Workers = LoanPool<Worker>;

  const v1::AudioFamily* const family_;
  Workers workers_;
};

// What a model makes of audio.
class AudioRows : public RowsRule {
 public:
  // `family` outlives it.
  explicit AudioRows(const v1::AudioFamily& family)
      : RowsRule(MediumKind::kAudio), family_(family) {}

  absl::StatusOr<RowsPlan> Plan(const StreamFacts& clip) const override;
  v1::Job::ClipShape shape() const override { return GetClipShape(family_); }
  const v1::AudioFamily::Marks& marks() const override {
    return family_.marks();
  }
  const v1::AudioFamily::InVideo* in_video() const override {
    return &family_.in_video();
  }
  IndexKeys index_keys(const v1::Model& model) const override;
  std::vector<std::pair<std::string, std::string>> fingerprint() const override;
  absl::Status Check() const override;
  std::unique_ptr<RowsReader> MakeReader(
      int threads, HelperCounters* counters) const override;

 private:
  const v1::AudioFamily& family_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_AUDIO_ROWS_H_
