#include "server/corpus/check/merge_checks.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/check/check_journal.h"
#include "server/corpus/file.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/index/index_writer.h"

namespace ballast {
namespace {

struct Journal {
  std::string bytes;
  ParsedJournal parsed;
};

// Reads the journals beside the index that hold results of it, by their number
// of shards and their shard. Others are passed over.
absl::StatusOr<std::map<uint32_t, std::map<uint32_t, Journal>>> FindJournals(
    const IndexFile& index, uint64_t num_units) {
  const std::filesystem::path path = index.path();
  const std::string prefix = path.filename().string() + ".check-";
  std::map<uint32_t, std::map<uint32_t, Journal>> found;
  std::error_code error;
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : ".";
  for (std::filesystem::directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), prefix)) continue;
    BALLAST_ASSIGN_OR_RETURN(const File file,
                             File::Open(entry->path().string()));
    Journal journal;
    BALLAST_ASSIGN_OR_RETURN(journal.bytes, file.ReadAt(0, file.stamp().size));
    absl::StatusOr<ParsedJournal> parsed = ParseJournal(journal.bytes);
    if (!parsed.ok() || parsed->key.index_checksum != index.checksum() ||
        parsed->key.num_units != num_units) {
      continue;
    }
    journal.parsed = *std::move(parsed);
    const CheckShard shard = journal.parsed.key.shard;
    found[shard.count].insert_or_assign(shard.number, std::move(journal));
  }
  if (error) return FileError(error.value(), "list", folder.string());
  return found;
}

// The result of each unit, from the journals of `shards` shards. Errors:
// FAILED_PRECONDITION, naming a shard without a result.
absl::StatusOr<std::vector<const CheckedUnit*>> UnitsOfAll(
    const std::map<uint32_t, Journal>& journals, uint32_t shards,
    const std::vector<CheckUnit>& units) {
  std::vector<const CheckedUnit*> all(units.size());
  for (const auto& [number, journal] : journals) {
    for (const CheckedUnit& unit : journal.parsed.units) {
      if (unit.results.size() == units[unit.unit].images)
        all[unit.unit] = &unit;
    }
  }
  for (uint32_t number = 1; number <= shards; ++number) {
    const CheckUnitRange range = UnitsOf({number, shards}, units.size());
    uint64_t missing = 0;
    for (uint64_t i = range.begin; i < range.end; ++i) {
      missing += all[i] == nullptr;
    }
    if (missing == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", number, "/", shards, " has checked ",
        range.end - range.begin - missing, " of its ", range.end - range.begin,
        " parts; run `ballast-server index --check --shard ", number, "/",
        shards, "` to its end first"));
  }
  return all;
}

// Errors: DATA_LOSS (damage).
absl::StatusOr<IndexContents> ContentsOf(const IndexFile& index) {
  IndexContents contents;
  contents.format = index.format();
  contents.digests = index.digests();
  contents.group_starts.assign(index.group_starts().begin(),
                               index.group_starts().end());
  for (uint64_t i = 0; i < index.num_files(); ++i) {
    contents.files.push_back({std::string(index.file_name(i)),
                              index.file_stamp(i), index.file_unreadable(i)});
  }
  const auto append = [](auto from, auto* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  contents.content_hashes.reserve(index.num_images());
  for (uint64_t i = 0; i < index.num_records(); ++i) {
    (i < index.size() ? contents.samples : contents.left_out)
        .push_back(index.record(i));
    append(index.images(i), &contents.images);
    append(index.marks(i), &contents.marks);
    append(index.hashes(i), &contents.content_hashes);
    BALLAST_ASSIGN_OR_RETURN(const auto videos, index.videos(i));
    append(videos, &contents.videos);
    contents.video_records.resize(contents.videos.size(), i);
  }
  contents.content_hashes.resize(contents.images.size());
  return contents;
}

// Enters the results into the images that they belong to, in order.
void Enter(const std::vector<const CheckedUnit*>& results,
           IndexContents* contents) {
  size_t image = 0;
  for (const CheckedUnit* unit : results) {
    for (size_t i = 0; i < unit->results.size(); ++i, ++image) {
      while (!NeedsCheck(contents->marks[image])) ++image;
      contents->marks[image] =
          ImageMark::Marked(contents->marks[image].bytes(), unit->results[i]);
      contents->content_hashes[image] = unit->content_hashes[i];
    }
  }
}

}  // namespace

absl::StatusOr<ImageMarkCounts> MergeChecks(const std::string& path,
                                            const CheckUnitSize& size) {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const IndexFile> index,
                           IndexFile::Open(path));
  BALLAST_RETURN_IF_ERROR(index->Verify(nullptr));
  const std::vector<CheckUnit> units = PlanCheck(*index, size);
  if (units.empty()) return index->mark_counts();
  BALLAST_ASSIGN_OR_RETURN(const auto found,
                           FindJournals(*index, units.size()));
  if (found.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        ": no results of a check of this index; run `ballast-server "
        "index --check` with every --shard I/N first, after the index was "
        "built last"));
  }
  // Takes the first number of shards that is complete; else names what the
  // first of all lacks.
  std::optional<std::vector<const CheckedUnit*>> results;
  absl::Status incomplete;
  for (const auto& [shards, journals] : found) {
    auto all = UnitsOfAll(journals, shards, units);
    if (all.ok()) {
      results = *std::move(all);
      break;
    }
    if (incomplete.ok()) incomplete = all.status();
  }
  if (!results.has_value()) return incomplete;
  BALLAST_ASSIGN_OR_RETURN(IndexContents contents, ContentsOf(*index));
  Enter(*results, &contents);
  BALLAST_RETURN_IF_ERROR(WriteIndex(path, contents));
  for (const auto& [shards, journals] : found) {
    for (const auto& [number, journal] : journals) {
      std::error_code ignored;  // a journal of an older index is harmless
      std::filesystem::remove(JournalPath(path, {number, shards}), ignored);
    }
  }
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const IndexFile> merged,
                           IndexFile::Open(path));
  return merged->mark_counts();
}

}  // namespace ballast
