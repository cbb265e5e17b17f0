#include "server/corpus/check/check_journal.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/align.h"
#include "common/status_macros.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_format.h"

namespace ballast {
namespace {

constexpr uint64_t kJournalMagic = 0x4B484354534C4C42;  // "BLLSTCHK"
constexpr uint32_t kJournalVersion = 1;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t rules;  // kMarkRules
  uint64_t index_checksum;
  uint64_t num_units;
  uint32_t shard;
  uint32_t shards;
  uint64_t checksum;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 48);

// Followed by a content hash (u64) for each image, a result (u8) for each,
// zeros up to a multiple of 8, and the XXH3-64 of all that.
struct RecordHeader {
  uint64_t unit;
  uint64_t images;
};
static_assert(sizeof(RecordHeader) == 16);

template <typename T>
absl::string_view BytesOf(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
absl::string_view BytesOf(absl::Span<const T> values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(T));
}

// Takes a record from the front of `bytes`; false if it is not whole.
bool TakeRecord(absl::string_view* bytes, CheckedUnit* unit) {
  RecordHeader header;
  if (bytes->size() < sizeof(header)) return false;
  std::memcpy(&header, bytes->data(), sizeof(header));
  const uint64_t left = bytes->size() - sizeof(header);
  if (header.images > left / sizeof(uint64_t)) return false;
  const uint64_t hashes = header.images * sizeof(uint64_t);
  const uint64_t results = AlignUp(header.images, sizeof(uint64_t));
  if (left - hashes < results + sizeof(uint64_t)) return false;
  const uint64_t size = sizeof(header) + hashes + results;
  uint64_t checksum;
  std::memcpy(&checksum, bytes->data() + size, sizeof(checksum));
  if (checksum != Checksum(bytes->substr(0, size))) return false;
  const char* const at = bytes->data() + sizeof(header);
  unit->unit = header.unit;
  unit->content_hashes =
      absl::MakeConstSpan(reinterpret_cast<const uint64_t*>(at), header.images);
  unit->results = absl::MakeConstSpan(
      reinterpret_cast<const ImageCheckResult*>(at + hashes), header.images);
  bytes->remove_prefix(size + sizeof(checksum));
  return true;
}

}  // namespace

std::string JournalHeader(const JournalKey& key) {
  Header header = {kJournalMagic,      kJournalVersion, kMarkRules,
                   key.index_checksum, key.num_units,   key.shard.number,
                   key.shard.count,    /*checksum=*/0};
  header.checksum =
      Checksum(BytesOf(header).substr(0, offsetof(Header, checksum)));
  return std::string(BytesOf(header));
}

std::string JournalRecord(const CheckedUnit& unit) {
  const RecordHeader header = {unit.unit, unit.results.size()};
  std::string record = absl::StrCat(
      BytesOf(header), BytesOf(unit.content_hashes), BytesOf(unit.results));
  record.resize(AlignUp(record.size(), sizeof(uint64_t)));
  const uint64_t checksum = Checksum(record);
  absl::StrAppend(&record, BytesOf(checksum));
  return record;
}

absl::StatusOr<ParsedJournal> ParseJournal(absl::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError("no header of a journal");
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kJournalMagic || header.version != kJournalVersion ||
      header.rules != kMarkRules ||
      header.checksum !=
          Checksum(bytes.substr(0, offsetof(Header, checksum)))) {
    return absl::DataLossError("not a journal of this version");
  }
  ParsedJournal journal;
  journal.key = {
      header.index_checksum, header.num_units, {header.shard, header.shards}};
  absl::string_view left = bytes.substr(sizeof(header));
  CheckedUnit unit;
  while (TakeRecord(&left, &unit)) {
    // Only a hostile file has such a unit: its checksum is right.
    if (unit.unit >= header.num_units ||
        std::any_of(unit.results.begin(), unit.results.end(),
                    [](ImageCheckResult result) {
                      return result > ImageCheckResult::kChanged;
                    })) {
      return absl::DataLossError("a unit that no check writes");
    }
    journal.units.push_back(unit);
  }
  journal.valid_bytes = bytes.size() - left.size();
  return journal;
}

std::string JournalPath(absl::string_view index_path, const CheckShard& shard) {
  return absl::StrCat(index_path, ".check-", shard.number, "-of-", shard.count);
}

absl::StatusOr<CheckJournal> CheckJournal::Open(const std::string& path,
                                                const JournalKey& key) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::OpenToAppend(path));
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                           file.ReadAt(0, file.stamp().size));
  const absl::StatusOr<ParsedJournal> parsed = ParseJournal(bytes);
  CheckJournal journal(std::move(file));
  journal.done_.resize(key.num_units);
  journal.results_.resize(4);
  if (parsed.ok() && parsed->key == key) {
    for (const CheckedUnit& unit : parsed->units) {
      if (journal.done_[unit.unit]) continue;
      journal.done_[unit.unit] = true;
      for (const ImageCheckResult result : unit.results) {
        ++journal.results_[static_cast<size_t>(result)];
      }
    }
    BALLAST_RETURN_IF_ERROR(journal.file_.Truncate(parsed->valid_bytes));
    return journal;
  }
  BALLAST_RETURN_IF_ERROR(journal.file_.Truncate(0));
  BALLAST_RETURN_IF_ERROR(journal.file_.Write(JournalHeader(key)));
  return journal;
}

absl::Status CheckJournal::Append(const CheckedUnit& unit) {
  return file_.Write(JournalRecord(unit));
}

}  // namespace ballast
