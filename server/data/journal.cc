#include "server/data/journal.h"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

constexpr uint32_t kMaxShards = 65536;

constexpr uint64_t kMagic = 0x4C4E524A4C4C42;  // "BLLJRNL"

struct Header {
  uint64_t magic;
  uint64_t key[2];    // XXH3-128 of the key
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 32);

// Followed by the record's bytes.
struct RecordHeader {
  uint64_t size;
  uint64_t checksum;  // XXH3-64 of those bytes
};

template <typename T>
absl::string_view GetBytes(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

Header GetHeader(absl::string_view key) {
  const Digest digest = ComputeDigest(key);
  Header header = {kMagic, {digest[0], digest[1]}, /*checksum=*/0};
  header.checksum =
      Checksum(GetBytes(header).substr(0, offsetof(Header, checksum)));
  return header;
}

// The end of the whole records of `file`, or nullopt if it belongs to another
// key.
absl::StatusOr<std::optional<uint64_t>> ReadRecords(
    const File& file, absl::string_view key, const OnJournalRecord& on_record) {
  const uint64_t end = file.stamp().size;
  if (end < sizeof(Header)) return std::nullopt;
  BALLAST_ASSIGN_OR_RETURN(const std::string head,
                           file.ReadAt(0, sizeof(Header)));
  if (head != GetBytes(GetHeader(key))) return std::nullopt;
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
    const absl::Status taken = on_record(bytes);
    if (absl::IsInvalidArgument(taken)) break;
    BALLAST_RETURN_IF_ERROR(taken);
    at = begin + record.size;
  }
  return at;
}

}  // namespace

absl::StatusOr<Shard> ParseShard(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  Shard shard;
  if (!absl::SimpleAtoi(parts.first, &shard.number) ||
      !absl::SimpleAtoi(parts.second, &shard.count) || shard.number < 1 ||
      shard.number > shard.count || shard.count > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", text,
                     ", wanted I/N with I from 1 to N and N of "
                     "at most ",
                     kMaxShards));
  }
  return shard;
}

UnitRange GetUnits(const Shard& shard, uint64_t num_units) {
  const auto begin = [&](uint64_t number) {
    return num_units / shard.count * number +
           num_units % shard.count * number / shard.count;
  };
  return {begin(shard.number - 1), begin(shard.number)};
}

std::string JournalPath(absl::string_view index_path, absl::string_view kind,
                        const Shard& shard) {
  return absl::StrCat(index_path, ".", kind, "-", shard.number, "-of-",
                      shard.count);
}

absl::StatusOr<std::set<uint32_t>> FindShardCounts(
    const std::string& index_path, absl::string_view kind) {
  const std::filesystem::path path = index_path;
  const std::string prefix =
      absl::StrCat(path.filename().string(), ".", kind, "-");
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : ".";
  std::set<uint32_t> counts;
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return counts;
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view left = name;
    if (!absl::ConsumePrefix(&left, prefix)) continue;
    const std::pair<absl::string_view, absl::string_view> numbers =
        absl::StrSplit(left, absl::MaxSplits("-of-", 1));
    const auto shard =
        ParseShard(absl::StrCat(numbers.first, "/", numbers.second));
    if (shard.ok()) counts.insert(shard->count);
  }
  if (error) return FileError(error.value(), "list", folder.string());
  return counts;
}

void RemoveJournals(const std::string& index_path, absl::string_view kind,
                    const std::set<uint32_t>& counts) {
  for (const uint32_t shards : counts) {
    for (uint32_t number = 1; number <= shards; ++number) {
      std::error_code ignored;
      std::filesystem::remove(JournalPath(index_path, kind, {number, shards}),
                              ignored);
    }
  }
}

absl::StatusOr<Journal> Journal::Open(const std::string& path,
                                      absl::string_view key,
                                      const OnJournalRecord& on_record) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return FileError(error.value(), "make the folder of", path);
  BALLAST_ASSIGN_OR_RETURN(File file, File::OpenToAppend(path));
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                           ReadRecords(file, key, on_record));
  BALLAST_RETURN_IF_ERROR(file.Truncate(end.value_or(0)));
  if (!end.has_value()) {
    BALLAST_RETURN_IF_ERROR(file.Write(GetBytes(GetHeader(key))));
  }
  return Journal(std::move(file));
}

absl::StatusOr<bool> Journal::Read(const std::string& path,
                                   absl::string_view key,
                                   const OnJournalRecord& on_record) {
  const absl::StatusOr<File> file = File::Open(path);
  if (absl::IsNotFound(file.status())) return false;
  BALLAST_RETURN_IF_ERROR(file.status());
  BALLAST_ASSIGN_OR_RETURN(const std::optional<uint64_t> end,
                           ReadRecords(*file, key, on_record));
  return end.has_value();
}

absl::Status Journal::Append(absl::string_view record) {
  const RecordHeader header = {record.size(), Checksum(record)};
  return file_.Write(absl::StrCat(GetBytes(header), record));
}

}  // namespace ballast
