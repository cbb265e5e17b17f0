#ifndef BALLAST_SERVER_DATA_ENERGON_ENERGON_INDEX_H_
#define BALLAST_SERVER_DATA_ENERGON_ENERGON_INDEX_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/data/energon/energon_tar.h"
#include "server/files/storage.h"
#include "server/sample/source_index.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ballast {

// The samples of one tar file in index.sqlite of an Energon folder, in order.
// The file is untrusted: rows are checked, and work is bounded by its size.
// Thread-compatible; blocks on the disk.
class EnergonIndex {
 public:
  // Opens `path` read-only, without locks: nobody may write it meanwhile, as
  // with Energon itself. An object of a store is copied to the disk first
  // (CopyToDisk). Errors: NOT_FOUND; DATA_LOSS (not a database, or not
  // Energon's); UNAVAILABLE (the disk, the store).
  static absl::StatusOr<std::unique_ptr<EnergonIndex>> Open(
      const std::string& path, uint64_t tar_file_id);
  ~EnergonIndex();
  EnergonIndex(const EnergonIndex&) = delete;
  EnergonIndex& operator=(const EnergonIndex&) = delete;

  // Whether the database knows the parts of samples; older ones do not.
  bool has_parts() const { return parts_ != nullptr; }

  // The next sample, whose parts are empty without has_parts(); nullopt at the
  // end. Errors: DATA_LOSS (damaged, or a column of another type).
  absl::StatusOr<std::optional<EnergonTarSample>> Next();

  // The size that the media metadata give for a part, "KEY.PART"; nullopt if
  // they have none. Errors: DATA_LOSS.
  absl::StatusOr<std::optional<ImageSize>> GetSize(const std::string& part);

 private:
  struct CloseDatabase {
    void operator()(sqlite3* database) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  EnergonIndex() = default;
  static absl::StatusOr<std::unique_ptr<EnergonIndex>> OpenFile(
      const std::string& path, uint64_t tar_file_id);
  absl::Status Prepare(uint64_t tar_file_id);
  absl::StatusOr<bool> HasTable(const char* name);
  absl::StatusOr<Statement> Compile(const char* sql);
  // Whether there is a row.
  absl::StatusOr<bool> Step(sqlite3_stmt* statement);
  absl::StatusOr<uint64_t> Number(sqlite3_stmt* statement, int column,
                                  const char* name);
  absl::StatusOr<std::string> Text(sqlite3_stmt* statement, int column,
                                   const char* name);
  absl::Status NextParts(uint64_t sample, EnergonTarSample* found);
  absl::Status Damaged(absl::string_view reason);

  std::string path_;
  // Of an object; outlives the database.
  std::shared_ptr<const LocalCopy> copy_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  Statement samples_;
  Statement parts_;
  Statement media_;
  uint64_t steps_left_ = 0;    // thousands of operations of the database's
  bool part_pending_ = false;  // parts_ is at a row not yet taken
  uint64_t last_sample_ = 0;
  bool any_sample_ = false;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_ENERGON_ENERGON_INDEX_H_
