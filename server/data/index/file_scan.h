#ifndef BALLAST_SERVER_DATA_INDEX_FILE_SCAN_H_
#define BALLAST_SERVER_DATA_INDEX_FILE_SCAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "server/data/index/index_options.h"
#include "server/data/index/probe_media.h"
#include "server/data/record_parser.h"
#include "server/files/file.h"
#include "server/sample/index_format.h"

namespace ballast {

// Sums the progress of the threads of a build. Thread-safe.
class ProgressMeter {
 public:
  ProgressMeter(uint64_t bytes_total,
                std::function<void(const IndexProgress&)> callback)
      : callback_(std::move(callback)) {
    progress_.bytes_total = bytes_total;
  }

  void Add(uint64_t bytes, uint64_t samples, uint64_t bad) {
    MutexLock lock(&mutex_);
    progress_.bytes_done += bytes;
    progress_.samples += samples;
    progress_.bad += bad;
    if (callback_) callback_(progress_);
  }

 private:
  const std::function<void(const IndexProgress&)> callback_;
  Mutex mutex_;
  IndexProgress progress_ ABSL_GUARDED_BY(mutex_);
};

// The result of scanning one data file for an index. Samples refer to `facts`;
// their `file` is still 0.
struct FileScan {
  std::string name;
  FileStamp stamp;
  std::vector<IndexSampleRecord> samples;
  MediaFacts facts;
  // Samples that are bad or skipped because of their text, with their media.
  std::vector<IndexSampleRecord> left_out;
  MediaFacts left_out_facts;
  uint64_t unreadable = 0;  // bad for other reasons
  // The latest modification of media that its records name (MediaProbe).
  int64_t media_time_ns = 0;
  IndexReport report;  // its counts of samples and media are 0
};

// What an old index has of the sample of this record: its lengths, if they
// hold. Enters into `facts` the checks of images whose content hash is the
// same.
using KnownSample = std::function<std::optional<TextLengths>(
    const IndexSampleRecord& record, MediaFacts* facts)>;

// The facts of one sample's media, as a list over them.
inline MediaList GetMedia(const MediaFactsView& facts) {
  return MediaList(facts.sizes, facts.marks, facts.streams, facts.times);
}

// Collects the samples of one file. Thread-compatible.
class FileScanner {
 public:
  // `options` and `progress` must outlive the scanner.
  FileScanner(std::string name, const File& file, const IndexOptions* options,
              ProgressMeter* progress);

  const std::string& name() const { return scan_.name; }
  const IndexOptions& options() const { return *options_; }
  // Samples whose lengths `known` has are not measured. Call before any Add.
  void SetKnown(KnownSample known) { known_ = std::move(known); }

  // Probes the media of `record`, of `file`, and adds it; or returns why it is
  // bad. `media` and `check_size` as in MediaProbe. Also returns failures of
  // the machine, which Listed distinguishes.
  absl::Status AddRecord(Record record, const File& file,
                         const MediaRoot* media,
                         const CheckImageSize& check_size = nullptr);
  // OK if `added` is, or once AddBad has listed the sample.
  absl::Status Listed(uint64_t offset, absl::string_view key,
                      const absl::Status& added) {
    return added.ok() ? added : AddBad(offset, key, added);
  }

  // Measures the sample and adds it, or lists it as bad or skipped. `record`
  // has its offset, length, checks and line. Errors: UNAVAILABLE, as the
  // measure.
  absl::Status Add(IndexSampleRecord record, absl::string_view key,
                   const RawSample& sample, const MediaFactsView& facts);
  // Adds a sample with known lengths.
  void AddMeasured(IndexSampleRecord record, const TextLengths& lengths,
                   const MediaFactsView& facts);
  // Counts samples of a file that is not read again, of which `unreadable` are
  // bad; `known` are those that the old index's list has. `media_time_ns` is
  // what the old index has of it.
  void AddReused(uint64_t samples, uint64_t lengths, uint64_t unreadable,
                 std::vector<BadSample> known, int64_t media_time_ns);
  // Lists a bad sample. A failure of the machine (disk, descriptors, memory) is
  // returned instead and ends the build.
  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason);
  // Lists damage at `offset`, from which on nothing of the file is read, and
  // the key of the sample before it that may lack members and is left out, if
  // any. Returns as AddBad.
  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason);
  void AddIgnored(absl::string_view extension, uint64_t count);
  // Counts a row that does not pass the source's filters.
  void AddFiltered() { ++scan_.report.filtered; }
  // Reports that the file has been scanned up to `offset`.
  void Advance(uint64_t offset);

  FileScan Finish() &&;

 private:
  // Sets the places of the videos in `streams` among the images of the text.
  void PlaceVideos(const RawSample& sample, size_t images,
                   std::vector<StreamFacts>* streams) const;
  // As Add, with the videos at their places.
  absl::Status Measure(IndexSampleRecord record, absl::string_view key,
                       const RawSample& sample, const MediaFactsView& facts);

  FileScan scan_;
  const IndexOptions* options_;
  ProgressMeter* progress_;
  KnownSample known_;
  uint64_t reported_offset_ = 0;
  uint64_t reported_samples_ = 0;
  uint64_t reported_bad_ = 0;
};

// Refuses a tar or a file of JSON that is compressed: it has no offsets to read
// samples at. Its first bytes say so, whatever its name. Errors:
// FAILED_PRECONDITION (it is), with `name` and what to do; as File::ReadAt.
absl::Status CheckNotCompressed(const File& file, absl::string_view name);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_FILE_SCAN_H_
