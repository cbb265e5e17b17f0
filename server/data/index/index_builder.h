#ifndef BALLAST_SERVER_DATA_INDEX_INDEX_BUILDER_H_
#define BALLAST_SERVER_DATA_INDEX_INDEX_BUILDER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/data/file_source.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/index_file.h"
#include "server/data/index/index_options.h"
#include "server/data/record_parser.h"
#include "server/data/source_files.h"

namespace ballast {
// The parts of an old index that still hold for a source's files, so that they
// need not be searched for samples again. Thread-safe.
class IndexReuse {
 public:
  // Opens the index of `source`. Nothing is reused if it is missing, damaged or
  // of a version before kOldestReusedVersion, or was built under another key of
  // sizes. `files` are the source's, `options` must outlive this.
  IndexReuse(const v1::Source& source, absl::string_view directory,
             const std::vector<SourceFile>& files, const IndexOptions* options);

  // Returns whether the images' marks hold. If not, Scan must not be called:
  // the files' images are read again.
  bool HasMarks() const { return index_ != nullptr && index_->HasMarks(); }

  // The file's number for the calls below, if it has not changed since the
  // index.
  std::optional<uint64_t> Find(const SourceFile& file,
                               const FileStamp& stamp) const;

  // Passes the samples of file `number` to `scanner`, with the image sizes of
  // the index. Reads and measures the texts whose lengths in the index do not
  // hold. Errors: as SampleSource::Read; DATA_LOSS (the file has the same size
  // and time but other content).
  absl::Status Scan(uint64_t number, FileScanner& scanner) const;

  // The lengths of the sample of file `number` that is the same as `record`, if
  // there is one and they hold. Enters into `facts` the checks of its images
  // that have the same content hash.
  std::optional<TextLengths> FindSample(uint64_t number,
                                        const IndexSampleRecord& record,
                                        MediaFacts* facts) const;
  // Whether the old index has the hashes of all images and videos.
  bool is_hashed() const { return index_ != nullptr && index_->is_hashed(); }

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };

  // The records of a file among those in [begin, end).
  Range GetRecords(uint64_t file, uint64_t begin, uint64_t end) const;
  // The lengths of a sample, if those in the index hold.
  std::optional<TextLengths> KnownLengths(uint64_t number) const;
  void KeepChecks(uint64_t number, MediaFacts* facts) const;
  absl::Status Measure(uint64_t number, FileScanner& scanner) const;
  // Of all images and videos of a record. Errors: DATA_LOSS.
  absl::StatusOr<MediaFactsView> GetFacts(uint64_t number) const;

  const IndexOptions* options_;
  IndexDigests digests_;                    // wanted of index_
  std::shared_ptr<const IndexFile> index_;  // null: nothing is reused
  std::unique_ptr<const FileSource> texts_;
  absl::flat_hash_map<std::string, uint64_t> numbers_;  // by SourceFile::below
  // What the list of the old index has of each file, without bad texts.
  absl::flat_hash_map<std::string, std::vector<BadSample>> bad_;
};

// Reads the data files of one source for its index, or takes what still holds
// from the old index. Thread-compatible.
class SourceScan {
 public:
  // Lists the files and opens the old index. `options` must outlive the scan.
  // Errors: as FindFormat and ListSourceFiles; of the format.
  static absl::StatusOr<std::unique_ptr<SourceScan>> Create(
      const v1::Source& source, absl::string_view directory,
      const IndexOptions* options);

  // All data files of the source, in order.
  const std::vector<SourceFile>& files() const { return files_; }

  // Takes the scan of file number `file`; called from any thread, one call at a
  // time, in no order. An error ends the run.
  using OnScan = std::function<absl::Status(size_t file, FileScan scan)>;

  // Scans the files whose numbers are in `wanted`, in increasing order,
  // options.threads at a time. Blocks until all are done. Errors: of the first
  // file that has one: as File; ABORTED (it changed meanwhile); of `on_scan`.
  absl::Status Run(absl::Span<const size_t> wanted, const OnScan& on_scan);

 private:
  SourceScan(std::vector<SourceFile> files,
             std::unique_ptr<const RecordParser> parser,
             const v1::Source& source, absl::string_view directory,
             const IndexOptions* options)
      : files_(std::move(files)),
        parser_(std::move(parser)),
        reuse_(source, directory, files_, options),
        options_(options) {}

  absl::StatusOr<FileScan> ScanFile(const SourceFile& source,
                                    ProgressMeter* progress) const;
  absl::Status Reuse(uint64_t number, FileScanner& scanner) const;

  const std::vector<SourceFile> files_;
  const std::unique_ptr<const RecordParser> parser_;
  const IndexReuse reuse_;
  const IndexOptions* const options_;
};

// Reads all files of `source` (paths relative to `directory`) and writes its
// index to source.index(), atomically: after an error the old index is as it
// was. Files that have not changed since the old index, under the same key of
// sizes, are not searched again: places and image sizes are taken from it, and
// lengths if the key and the limits allow. Bad samples are reported and left
// out; they are no error. Equal files give an equal index for any number of
// `threads`. Holds the index in memory until it is written. Blocks until then.
// Errors: as ExpandPath and File; ABORTED (a data file changed meanwhile);
// UNIMPLEMENTED (as CheckFormatIsRead).
absl::StatusOr<IndexReport> BuildIndex(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options);

// The end of BuildIndex: writes the index of `source` from the scans of all its
// files, in their order, if options.accept agrees. Errors: as WriteIndex.
absl::StatusOr<IndexReport> WriteAssembled(const v1::Source& source,
                                           absl::string_view directory,
                                           const IndexOptions& options,
                                           std::vector<FileScan> scans);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_INDEX_INDEX_BUILDER_H_
