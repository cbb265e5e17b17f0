#ifndef BALLAST_SERVER_CORPUS_CHECK_CHECK_JOURNAL_H_
#define BALLAST_SERVER_CORPUS_CHECK_CHECK_JOURNAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/corpus/check/check_plan.h"
#include "server/corpus/file.h"
#include "server/corpus/index/image_mark.h"

namespace ballast {

// What a journal belongs to. Its results hold for nothing else.
struct JournalKey {
  uint64_t index_checksum = 0;  // IndexFile::checksum
  uint64_t num_units = 0;       // of all shards
  CheckShard shard;

  friend bool operator==(const JournalKey&, const JournalKey&) = default;
};

// The results of a unit, in the order of its images to check. Does not own
// them.
struct CheckedUnit {
  uint64_t unit = 0;
  absl::Span<const uint64_t> content_hashes;
  absl::Span<const ImageCheckResult> results;
};

// A journal holds the units that a check has finished, so that one that was
// killed goes on behind them, and shards bring their results together
// (docs/index_format.md). These functions are pure.
std::string JournalHeader(const JournalKey& key);
std::string JournalRecord(const CheckedUnit& unit);

struct ParsedJournal {
  JournalKey key;
  // In the order in which they were finished. They point into the bytes.
  std::vector<CheckedUnit> units;
  // The bytes behind these are a record that was not written to its end.
  uint64_t valid_bytes = 0;
};
// `bytes` begin at a multiple of 8. Errors: DATA_LOSS (not a journal, or of
// another version).
absl::StatusOr<ParsedJournal> ParseJournal(absl::string_view bytes);

// The journal of a shard beside the index of that path:
// "docs.index.check-3-of-8".
std::string JournalPath(absl::string_view index_path, const CheckShard& shard);

// A journal that is being written. Thread-compatible.
class CheckJournal {
 public:
  // Opens or creates the journal at `path` and keeps other processes from doing
  // so. Of one with another key nothing is kept. Errors: as File::OpenToAppend.
  static absl::StatusOr<CheckJournal> Open(const std::string& path,
                                           const JournalKey& key);

  // done()[i]: unit i of all shards was recorded before.
  const std::vector<bool>& done() const { return done_; }
  // Numbers of images by result in the units that were recorded before,
  // indexed by ImageCheckResult.
  const std::vector<uint64_t>& results() const { return results_; }

  // Records a unit: a process that is killed after this has it. Errors: as
  // File::Write.
  absl::Status Append(const CheckedUnit& unit);
  // Waits until all units are on the disk. Errors: as File::Sync.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit CheckJournal(File file) : file_(std::move(file)) {}

  File file_;
  std::vector<bool> done_;
  std::vector<uint64_t> results_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_CHECK_CHECK_JOURNAL_H_
