#ifndef BALLAST_SERVER_DATA_INDEX_INDEX_OPTIONS_H_
#define BALLAST_SERVER_DATA_INDEX_INDEX_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/data/index/image_probe.h"
#include "server/sample/index_format.h"
#include "server/sample/sample_source.h"
#include "server/sample/source_index.h"

namespace ballast {

// The inputs of an index besides the data files, in parts, so that a change
// rebuilds only what depends on it. Each part names all that it covers,
// in any form: only equality counts.
struct IndexKey {
  // Inputs of the samples' places and the images' sizes, e.g. whether images
  // are rotated.
  std::string sizes;
  // Inputs of the lengths of whole texts: tokenizer, template, token ids.
  std::string lengths;
  // Bounds of a text and of its image sizes: pixels and tokens.
  std::string limits;
  // What decides how videos are sampled. It is one more limit of a source that
  // has videos, and nothing to any other.
  std::string videos = "";

  friend bool operator==(const IndexKey&, const IndexKey&) = default;
};

// The key as stored in an index. `sizes` also covers the format and the media
// root of the source.
struct IndexDigests {
  Digest sizes = {};
  Digest lengths = {};
  Digest limits = {};

  friend bool operator==(const IndexDigests&, const IndexDigests&) = default;
};

// A sample's lengths, as IndexedSample has them.
struct TextLengths {
  uint32_t text_tokens = 0;
  uint32_t label_tokens = 0;
  // The sample is left out without being bad.
  bool skip = false;
  // Other limits (IndexKey) may give other lengths, even limits that the sample
  // is within: it was truncated, or its text is checked against its images.
  bool limited = false;
  // IndexedSample::first_text_tokens.
  uint32_t first_text_tokens = 0;
  // Why nothing of the text is learnt, or the ends of empty answers alone. With
  // label_tokens 0, "": unknown.
  std::string unlearnt = "";
};

// Measures the lengths of a sample. An error makes it bad, with its message as
// the reason, except UNAVAILABLE, a failure of the machine, which ends the
// build. The RawSample has a name, a text and the facts of its media, but
// no media; the sizes of its images are passed separately.
// Called from several threads at once.
using SampleMeasure = std::function<absl::StatusOr<TextLengths>(
    const RawSample& sample, absl::Span<const ImageSize> images)>;

// Whether lengths that were found under other limits, and are not `limited`, as
// lengths of samples with a video are, also hold under the limits of this
// build. Called from several threads at once.
using LengthsHold = std::function<bool(const TextLengths& lengths,
                                       absl::Span<const ImageSize> images)>;

// What an index holds of a stream.
struct StreamProbed {
  StreamProbed() = default;
  // Of constant rate, and of audio.
  StreamProbed(const StreamFacts& facts)  // NOLINT(google-explicit-constructor)
      : facts(facts) {}
  StreamProbed(const StreamFacts& facts, std::vector<uint32_t> times)
      : facts(facts), times(std::move(times)) {}

  StreamFacts facts = {};
  std::vector<uint32_t> times;  // FrameTimes
};

// Reads the facts of a video, without clip and sample_fps. INVALID_ARGUMENT: it
// is damaged, or not read. Called from several threads at once; blocks.
using StreamProbe =
    std::function<absl::StatusOr<StreamProbed>(const RawMedium& video)>;

// The order of so many media of a sample in its text. Text that is not
// understood, on which SampleMeasure fails, has none. Called as SampleMeasure.
using FindMediaOrder = std::function<MediaOrder(const RawSample& sample,
                                                const MediaCounts& media)>;

// Progress of building or checking one index.
struct IndexProgress {
  uint64_t bytes_done = 0;
  // Building: of all data files; media files do not count. Checking: of the
  // images to check.
  uint64_t bytes_total = 0;
  uint64_t samples = 0;  // checking: images
  uint64_t bad = 0;      // checking: images that are not clean
};

struct IndexReport;

// Options of building an index.
struct IndexOptions {
  SampleMeasure measure;
  ImageSizeReader read_image_size;
  ImageJudge judge_image = JudgeHeader;
  // If empty, no image is decoded.
  ImageDecode decode_image;
  // By kind, of media that run in time. If empty, samples with such are bad.
  PerMedium<StreamProbe> read;
  // Of the audio of videos. If empty, it is not read; else other audio is
  // among it as in `find_order`, or without that after it.
  StreamProbe read_audio_in_video;
  // Every record is a preference pair (sources[].pairs).
  bool pairs = false;
  // Why samples with images are bad; "": they are not.
  std::string no_images = "";
  FindMediaOrder find_order;
  // Images and videos have one order, that of the text. Else all images are
  // before all videos.
  bool mixes_images_and_videos = false;
  // An index built with another key is stale.
  IndexKey key;
  // If empty, all texts are measured again under other limits.
  LengthsHold lengths_hold;
  // Keeps a hash of every medium, for which all their bytes are read
  // (IndexFile::is_hashed).
  bool hash = false;
  // True if parts of the old index that still fit may be reused.
  bool reuse = true;
  // May be empty. Called from any thread, one call at a time, about once per
  // MiB; the last call has bytes_done == bytes_total.
  std::function<void(const IndexProgress&)> progress;
  // Called once with the result of all files, before anything is written. If it
  // returns false, no index is written and the old one stays. May be empty.
  std::function<bool(const IndexReport&)> accept;
  // Files read at the same time. At least 1.
  uint32_t threads = 1;
};

// A bad sample, which is not in the index, or damage in a tar or Parquet file.
// For damage of a tar file, the index holds no sample from there to the file's
// end, nor the sample `key` before it, if one is named: it may lack members;
// for damage of a Parquet file, none of the row group or of the whole file.
struct BadSample {
  std::string file;  // relative to the configuration's directory if inside it
  uint64_t offset = 0;
  // webdataset: the key; jsonl and parquet: the number of the line, element or
  // row; empty for a Parquet file or row group, or the rest of a JSON array.
  std::string key;
  std::string reason;
  // data_fault.h; empty for all others.
  std::string kind;
  // Its text alone is bad, so that the index has its record.
  bool has_record = false;
};

struct IndexReport {
  uint64_t samples = 0;
  MediaCounts media;
  // Of these images, including those whose checks were taken from the old
  // index.
  ImageMarkCounts marks;
  uint64_t skipped = 0;
  // Files unchanged since the old index; the places and image sizes of their
  // samples were taken from it.
  uint64_t reused_files = 0;
  uint64_t reused_samples = 0;
  // Samples of unchanged files whose text was not measured again.
  uint64_t reused_lengths = 0;
  // Bad samples of reused files that are not in `bad`, since no list of the old
  // index has them.
  uint64_t known_bad = 0;
  // Tar members that belong to no sample, by extension
  // (WebDatasetReader::ignored).
  std::map<std::string, uint64_t> ignored;
  // Rows of Parquet files that did not pass the filters, without the rows of
  // reused files.
  uint64_t filtered = 0;
  // Samples of the index of which nothing is learnt.
  struct Unlearnt {
    uint64_t count = 0;
    std::string first;  // of them, as "FILE at byte N"
  };
  // By cause: TextLengths::unlearnt.
  std::map<std::string, Unlearnt> unlearnt;
  // Ordered by file, then by offset.
  std::vector<BadSample> bad;
};

// Adds to the samples of that cause.
void AddUnlearnt(const std::string& cause, const IndexReport::Unlearnt& samples,
                 IndexReport* report);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_INDEX_OPTIONS_H_
