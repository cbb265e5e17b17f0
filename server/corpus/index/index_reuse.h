#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_REUSE_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_REUSE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/corpus/file.h"
#include "server/corpus/file_source.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/source_files.h"

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
  // there is one and they hold.
  std::optional<TextLengths> FindLengths(uint64_t number,
                                         const IndexSampleRecord& record) const;

 private:
  struct Range {
    uint64_t begin;
    uint64_t end;
  };

  // The records of a file among those in [begin, end).
  Range RecordsOf(uint64_t file, uint64_t begin, uint64_t end) const;
  // The lengths of a sample, if those in the index hold.
  std::optional<TextLengths> KnownLengths(uint64_t number) const;
  absl::Status Measure(uint64_t number, FileScanner& scanner) const;
  // Of all images and videos of a record. Errors: DATA_LOSS.
  absl::StatusOr<ImageFactsView> FactsOf(uint64_t number) const;

  const IndexOptions* options_;
  IndexDigests digests_;                    // wanted of index_
  std::shared_ptr<const IndexFile> index_;  // null: nothing is reused
  std::unique_ptr<const FileSource> texts_;
  absl::flat_hash_map<absl::string_view, uint64_t> numbers_;  // by file's name
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_REUSE_H_
