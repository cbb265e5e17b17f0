#ifndef BALLAST_SERVER_CORPUS_INDEX_SOURCE_SCAN_H_
#define BALLAST_SERVER_CORPUS_INDEX_SOURCE_SCAN_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/index_options.h"
#include "server/corpus/index/index_reuse.h"
#include "server/corpus/source_files.h"

namespace ballast {

// Reads a data file that is not reused, and passes its samples on.
using ReadFile = std::function<absl::Status(const File&, FileScanner&)>;

// Reads the data files of one source for its index, or takes what still holds
// from the old index. Thread-compatible.
class SourceScan {
 public:
  // Lists the files and opens the old index. `options` must outlive the scan.
  // Errors: as CheckFormatIsRead, ListSourceFiles and MediaRoot::Create.
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
  SourceScan(std::vector<SourceFile> files, ReadFile read_file,
             const v1::Source& source, absl::string_view directory,
             const IndexOptions* options)
      : files_(std::move(files)),
        read_file_(std::move(read_file)),
        reuse_(source, directory, files_, options),
        options_(options) {}

  absl::StatusOr<FileScan> ScanFile(const SourceFile& source,
                                    ProgressMeter* progress) const;
  absl::Status Reuse(uint64_t number, FileScanner& scanner) const;

  const std::vector<SourceFile> files_;
  const ReadFile read_file_;
  const IndexReuse reuse_;
  const IndexOptions* const options_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_SOURCE_SCAN_H_
