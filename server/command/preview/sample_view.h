#ifndef BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_VIEW_H_
#define BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "server/delivery/file_sample_builder.h"
#include "server/job/job_setup.h"
#include "server/media/audio/audio_rows.h"
#include "server/sample/image_header.h"
#include "server/sample/sample_source.h"
#include "server/text/text_token.h"

namespace ballast {

// "jpeg", "png" or "webp".
const char* ImageFormatName(ImageFormat format);

// Consecutive tokens of a sample that belong together for a reader of its text.
struct TokenRun {
  uint32_t first = 0;   // of the sample's tokens
  uint32_t tokens = 0;  // at least 1
  // Placeholders of one.
  std::optional<MediumKind> medium = {};
  // The loss counts these tokens: the model is to predict them.
  bool supervised = false;
  // The tokens' text, special tokens spelled out. Ids that the tokenizer does
  // not know are written as the model's names for them, "<|im_start|>", or as
  // "<|17|>". Empty for placeholders.
  std::string text;
  bool rejected = false;  // of the second sequence of a preference pair
};

// Splits a sample into the longest runs whose tokens are alike. `labels[i]` is
// what the model is to predict after token i, -100 if nothing, so it supervises
// token i + 1; both spans are of one length. `special` are the model's; its
// `image`, `video` and `audio` mark placeholders. Pure.
std::vector<TokenRun> FindTokenRuns(absl::Span<const int32_t> ids,
                                    absl::Span<const int32_t> labels,
                                    const v1::TokenIds& special,
                                    const Tokenizer& tokenizer);

// A sample as the trainer gets it, with its place in the schedule.
struct SampleView {
  // A sampled frame of a video.
  struct Frame {
    uint32_t video = 0;   // of the sample
    uint32_t number = 0;  // in the video's file
    double seconds = 0;   // from the video's first frame
  };
  // A picture of what an encoder takes: RGB rows from the top, no gaps.
  // Features of audio are grey, bright where they are large, low frequencies
  // below.
  struct Crop {
    MediumKind kind = MediumKind::kImage;
    uint32_t height = 0;  // pixels
    uint32_t width = 0;
    uint32_t grid_h = 0;  // patches
    uint32_t grid_w = 0;
    std::vector<uint8_t> pixels;
    // Of a frame of a video.
    std::optional<Frame> frame = {};
    uint32_t frames = 0;  // of audio: columns that count
  };
  // A medium as it is stored.
  struct Stored {
    MediumKind kind = MediumKind::kImage;
    // "jpeg", "wav"; FFmpeg's name of a codec; of a list "pictures".
    std::string format;
    uint32_t width = 0;  // pixels, as shown
    uint32_t height = 0;
    uint32_t frames = 0;  // of a video; of audio samples
    double rate = 0;      // of these, a second
    uint64_t bytes = 0;   // of an image
    // Why the header cannot be read; then there are no facts but `bytes`.
    std::string fault;
  };
  // A module's share of the sample.
  struct Share {
    v1::Module module = v1::MODULE_UNSPECIFIED;
    double cost = 0;
    uint32_t reader = 0;  // data-parallel ranks
    uint32_t owner = 0;
  };

  v1::Split split = v1::SPLIT_TRAIN;
  uint64_t position = 0;
  uint64_t step = 0;
  uint32_t micro_batch = 0;  // of the step, as it is read
  std::string source;
  uint64_t ordinal = 0;  // in the source's index
  std::string name;      // as messages name it; empty if it cannot be read
  SampleLocation location;
  // Of a source with a recipe: the record (RecordJson), and the text of the
  // sample that the recipe has made of it; else empty.
  std::string record;
  std::string cooked;
  uint32_t tokens = 0;
  uint32_t label_tokens = 0;
  uint64_t patches = 0;
  std::vector<Share> shares;
  std::vector<TokenRun> runs;
  // Of an encoder of images, then of one of audio.
  std::vector<Crop> crops;
  // In the order of the index.
  std::vector<Stored> media;
  // Why the sample cannot be built, so that a placeholder would replace it or
  // the job stop. Empty: it can. Then runs and crops may be empty.
  std::string fault;
};

// Builds samples as a server would, one at a time and on demand. Thread-safe.
class SampleViewer {
 public:
  // `job` is not owned.
  explicit SampleViewer(const OpenedJob* job);

  // The sample at a position of a split's order. Images are decoded here, also
  // images that would pass through encoded (model.decode): the bytes are the
  // same. Blocks on the disk. Errors: NOT_FOUND (no step has the position), as
  // Scheduler::Schedule. A sample that cannot be built is no error: see
  // SampleView::fault.
  absl::StatusOr<SampleView> View(v1::Split split, uint64_t position) const;

  // The file of an image as it is stored. Errors: OUT_OF_RANGE (no such image),
  // as SampleSource::Read, and its data faults.
  absl::StatusOr<std::string> ImageFile(v1::Split split, uint64_t position,
                                        uint32_t image) const;

  // A clip as the model hears it: a WAV file, 16 kHz, 16 bits, one channel.
  // Errors: OUT_OF_RANGE (no such clip), as SampleSource::Read,
  // PlanIndexedClip and ClipReader::ReadSamples, and their data faults.
  absl::StatusOr<std::string> ClipFile(v1::Split split, uint64_t position,
                                       uint32_t clip) const;

  // The first position that holds the sample. Errors: NOT_FOUND (no such source
  // in the split, no such sample), DEADLINE_EXCEEDED (not among the positions
  // searched within `most`), as Scheduler::Schedule.
  absl::StatusOr<uint64_t> FindSample(v1::Split split,
                                      const std::string& source,
                                      uint64_t ordinal,
                                      absl::Duration most) const;

 private:
  struct Place;
  absl::StatusOr<Place> Find(v1::Split split, uint64_t position) const;
  absl::Status AddPayload(const Place& place, v1::Module module,
                          SampleView* view) const;
  void AddStored(const Place& place, SampleView* view) const;
  absl::Status NameFrames(const Place& place, SampleView* view) const;

  const OpenedJob* const job_;
  const v1::Config config_;
  const FileSampleBuilder builder_;
  mutable ClipReader clips_;  // thread-safe
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_PREVIEW_SAMPLE_VIEW_H_
