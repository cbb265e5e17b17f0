#ifndef BALLAST_SERVER_DATA_JOURNAL_H_
#define BALLAST_SERVER_DATA_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/file.h"

namespace ballast {

// One of `count` parts of the work on an index that run apart, e.g. on a
// machine each.
struct Shard {
  uint32_t number = 1;  // 1 to count
  uint32_t count = 1;   // 1 to 65536

  friend bool operator==(const Shard&, const Shard&) = default;
};

// Reads "3/8". Errors: INVALID_ARGUMENT.
absl::StatusOr<Shard> ParseShard(absl::string_view text);

// The units [begin, end) of a shard. The shards' ranges follow one another.
struct UnitRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
UnitRange GetUnits(const Shard& shard, uint64_t num_units);

// Kinds of work whose results wait in journals next to the index.
inline constexpr absl::string_view kScanJournal = "scan";
inline constexpr absl::string_view kCheckJournal = "check";

// The journal of a shard next to the index of that path:
// "docs.index.scan-3-of-8".
std::string JournalPath(absl::string_view index_path, absl::string_view kind,
                        const Shard& shard);
// The numbers of shards of the journals next to the index. Errors: as
// FileError.
absl::StatusOr<std::set<uint32_t>> FindShardCounts(
    const std::string& index_path, absl::string_view kind);
// Removes the journals of these numbers of shards. One that stays, because it
// cannot be removed, is harmless: it belongs to no later index.
void RemoveJournals(const std::string& index_path, absl::string_view kind,
                    const std::set<uint32_t>& counts);

// Takes a record of a journal. INVALID_ARGUMENT: not one that its writer makes,
// which only a hostile file has, and which ends the journal; other errors end
// the reading.
using OnJournalRecord = std::function<absl::Status(absl::string_view record)>;

// A file of records, each with its length and checksum, for work that may be
// killed: what was appended is there for the next run, and a record that was
// not written to its end counts for nothing (docs/index_format.md). Belongs to
// a key, any bytes: its records hold for nothing else. Thread-compatible;
// blocks on the disk.
class Journal {
 public:
  // Opens or creates the journal at `path`, and its folder, and keeps other
  // processes from doing so. Passes what it holds to `on_record`; of one with
  // another key nothing is kept. Errors: as File::OpenToAppend; of `on_record`.
  static absl::StatusOr<Journal> Open(const std::string& path,
                                      absl::string_view key,
                                      const OnJournalRecord& on_record);

  // Passes what the journal at `path` holds to `on_record`. Returns false, and
  // passes nothing, if there is none or it belongs to another key. Errors: as
  // File::Open; of `on_record`.
  static absl::StatusOr<bool> Read(const std::string& path,
                                   absl::string_view key,
                                   const OnJournalRecord& on_record);

  // Records these bytes: a process that is killed after this has them. Errors:
  // as File::Write.
  absl::Status Append(absl::string_view record);
  // Waits until all records are on the disk. Errors: as File::Sync.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit Journal(File file) : file_(std::move(file)) {}

  File file_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_JOURNAL_H_
