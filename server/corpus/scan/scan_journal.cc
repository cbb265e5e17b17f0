#include "server/corpus/scan/scan_journal.h"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr uint64_t kMagic = 0x4E4353544C4C42;  // "BLLTSCN"
constexpr uint32_t kVersion = 1;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t shard;
  uint32_t shards;
  uint32_t zero;
  uint64_t source[2];
  uint64_t num_files;
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 56);

// Followed by the scan's bytes.
struct RecordHeader {
  uint64_t size;
  uint64_t checksum;  // XXH3-64 of those bytes
};

template <typename T>
absl::string_view BytesOf(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

Header HeaderOf(const ScanJournalKey& key) {
  Header header = {kMagic,           kVersion,
                   key.shard.number, key.shard.count,
                   /*zero=*/0,       {key.source[0], key.source[1]},
                   key.num_files,
                   /*checksum=*/0};
  header.checksum =
      Checksum(BytesOf(header).substr(0, offsetof(Header, checksum)));
  return header;
}

// The end of the whole records of `file`, or nullopt if it belongs to another
// key.
absl::StatusOr<std::optional<uint64_t>> ReadRecords(
    const File& file, const ScanJournalKey& key,
    const OnRecordedScan& on_scan) {
  const uint64_t end = file.stamp().size;
  const Header wanted = HeaderOf(key);
  if (end < sizeof(Header)) return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const std::string head,
                           file.ReadAt(0, sizeof(Header)));
  if (head != BytesOf(wanted)) return std::nullopt;
  uint64_t at = sizeof(Header);
  while (end - at >= sizeof(RecordHeader)) {
    RecordHeader record;
    BALLAST_RETURN_IF_ERROR(
        file.ReadAt(at, sizeof(record), reinterpret_cast<char*>(&record)));
    const uint64_t begin = at + sizeof(record);
    // The rest is a record that was not written to its end.
    if (record.size > end - begin) break;
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             file.ReadAt(begin, record.size));
    if (Checksum(bytes) != record.checksum) break;
    absl::StatusOr<NumberedScan> scan = ReadScan(bytes);
    // Only a hostile file has these: its checksum is right.
    if (!scan.ok() || scan->file >= key.num_files) break;
    BALLAST_RETURN_IF_ERROR(on_scan(*std::move(scan)));
    at = begin + record.size;
  }
  return at;
}

}  // namespace

std::string ScanJournalPath(absl::string_view index_path,
                            const CheckShard& shard) {
  return absl::StrCat(index_path, ".scan-", shard.number, "-of-", shard.count);
}

absl::StatusOr<ScanJournal> ScanJournal::Open(const std::string& path,
                                              const ScanJournalKey& key,
                                              const OnRecordedScan& on_scan) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return FileError(error.value(), "make the folder of", path);
  BALLAST_ASSIGN_OR_RETURN(File file, File::OpenToAppend(path));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                           ReadRecords(file, key, on_scan));
  BALLAST_RETURN_IF_ERROR(file.Truncate(end.value_or(0)));
  if (!end.has_value()) {
    BALLAST_RETURN_IF_ERROR(file.Write(BytesOf(HeaderOf(key))));
  }
  return ScanJournal(std::move(file));
}

absl::StatusOr<bool> ScanJournal::Read(const std::string& path,
                                       const ScanJournalKey& key,
                                       const OnRecordedScan& on_scan) {
  BALLAST_ASSIGN_OR_RETURN(const File file, File::Open(path));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                           ReadRecords(file, key, on_scan));
  return end.has_value();
}

absl::Status ScanJournal::Append(uint64_t file, const FileScan& scan) {
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, WriteScan(file, scan));
  const RecordHeader header = {bytes.size(), Checksum(bytes)};
  return file_.Write(absl::StrCat(BytesOf(header), bytes));
}

}  // namespace ballast
