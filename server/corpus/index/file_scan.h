#ifndef BALLAST_SERVER_CORPUS_INDEX_FILE_SCAN_H_
#define BALLAST_SERVER_CORPUS_INDEX_FILE_SCAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/corpus/energon/energon_folder.h"
#include "server/corpus/file.h"
#include "server/corpus/index/image_facts.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/progress_meter.h"
#include "server/corpus/jsonl/media_root.h"
#include "server/corpus/parquet/parquet_columns.h"

namespace ballast {

// The result of scanning one data file for an index. Samples refer to `images`;
// their `file` is still 0.
struct FileScan {
  std::string name;
  FileStamp stamp;
  std::vector<IndexSampleRecord> samples;
  ImageFacts images;
  // Samples that are bad or skipped because of their text, with their images.
  std::vector<IndexSampleRecord> left_out;
  ImageFacts left_out_images;
  uint64_t unreadable = 0;  // bad for other reasons
  IndexReport report;       // its counts of samples and images are 0
};

// The lengths of a sample that an old index has, if they hold.
using KnownLengths =
    std::function<std::optional<TextLengths>(const IndexSampleRecord& record)>;

// Collects the samples of one file. Thread-compatible.
class FileScanner {
 public:
  // `options` and `progress` must outlive the scanner.
  FileScanner(std::string name, const File& file, const IndexOptions* options,
              ProgressMeter* progress);

  const std::string& name() const { return scan_.name; }
  const IndexOptions& options() const { return *options_; }
  // Samples whose lengths `known` has are not measured. Call before any Add.
  void SetKnownLengths(KnownLengths known) { known_ = std::move(known); }

  // Measures the sample and adds it, or lists it as bad or skipped. `record`
  // has its offset, length, checks and line. Errors: UNAVAILABLE, as the
  // measure.
  absl::Status Add(IndexSampleRecord record, absl::string_view key,
                   const RawSample& sample, const ImageFactsView& images);
  // Adds a sample with known lengths.
  void AddMeasured(IndexSampleRecord record, const TextLengths& lengths,
                   const ImageFactsView& images);
  // Counts samples of a file that is not read again; `known_bad` are bad ones.
  void AddReused(uint64_t samples, uint64_t lengths, uint64_t known_bad);
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
  // As Add, with the videos in their places among the images.
  absl::Status AddPlaced(IndexSampleRecord record, absl::string_view key,
                         const RawSample& sample, const ImageFactsView& images);

  FileScan scan_;
  const IndexOptions* options_;
  ProgressMeter* progress_;
  KnownLengths known_;
  uint64_t reported_offset_ = 0;
  uint64_t reported_samples_ = 0;
  uint64_t reported_bad_ = 0;
};

// Reads a file and passes its samples to `scanner`. Errors end the build.
absl::Status ScanWebDataset(const File& file, FileScanner& scanner);
absl::Status ScanJsonl(const File& file, const MediaRoot& media,
                       FileScanner& scanner);
// Errors also: FAILED_PRECONDITION, UNIMPLEMENTED (OpenParquetFile).
absl::Status ScanParquet(const File& file, const ParquetColumns& columns,
                         const MediaRoot& media, FileScanner& scanner);
// `file` is `shard` of `folder`. Takes the places of samples and parts from its
// index.sqlite where there is one, and holds the tar file against it, and the
// images' sizes against its media metadata. Errors also: as EnergonIndex;
// FAILED_PRECONDITION (the tar has another number of samples than .info).
absl::Status ScanEnergon(const File& file, const EnergonFolder& folder,
                         const EnergonShard& shard, FileScanner& scanner);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_FILE_SCAN_H_
