#ifndef BALLAST_SERVER_CORPUS_SCAN_SCAN_JOURNAL_H_
#define BALLAST_SERVER_CORPUS_SCAN_SCAN_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/corpus/check/check_plan.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/scan/scan_bytes.h"

namespace ballast {

// What a journal belongs to. Its scans hold for nothing else.
struct ScanJournalKey {
  // Covers the version of the index, its keys and the names of all files.
  Digest source = {};
  uint64_t num_files = 0;
  CheckShard shard;

  friend bool operator==(const ScanJournalKey&,
                         const ScanJournalKey&) = default;
};

// The journal of a shard beside the index of that path:
// "docs.index.scan-3-of-8".
std::string ScanJournalPath(absl::string_view index_path,
                            const CheckShard& shard);

// Takes a recorded scan. An error ends the reading.
using OnRecordedScan = std::function<absl::Status(NumberedScan scan)>;

// A journal holds the scans of the files that a shard has finished, so that one
// that was killed goes on behind them. Thread-compatible.
class ScanJournal {
 public:
  // Opens or creates the journal at `path`, and its folder, and keeps other
  // processes from doing so. Passes what it holds to `on_scan`; of one with
  // another key nothing is kept. Errors: as File::OpenToAppend; of `on_scan`.
  static absl::StatusOr<ScanJournal> Open(const std::string& path,
                                          const ScanJournalKey& key,
                                          const OnRecordedScan& on_scan);

  // Passes what the journal at `path` holds to `on_scan`. Returns false, and
  // passes nothing, if it belongs to another key. Errors: as File::Open.
  static absl::StatusOr<bool> Read(const std::string& path,
                                   const ScanJournalKey& key,
                                   const OnRecordedScan& on_scan);

  // Records a scan: a process that is killed after this has it. A later one of
  // the same file counts. Errors: as WriteScan and File::Write.
  absl::Status Append(uint64_t file, const FileScan& scan);
  // Waits until all scans are on the disk. Errors: as File::Sync.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit ScanJournal(File file) : file_(std::move(file)) {}

  File file_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_SCAN_SCAN_JOURNAL_H_
