#include "server/corpus/scan/shard_scan.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/source_scan.h"
#include "server/corpus/scan/scan_journal.h"
#include "server/corpus/source_files.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// The stamps that the files of a range have now.
absl::StatusOr<std::vector<FileStamp>> StampsOf(
    const std::vector<SourceFile>& files, const CheckUnitRange& range) {
  std::vector<std::string> paths;
  for (uint64_t file = range.begin; file < range.end; ++file) {
    paths.push_back(files[file].path);
  }
  return Storage::OfProcess().StampAll(paths);
}

ScanJournalKey KeyOf(const v1::Source& source, absl::string_view directory,
                     const IndexOptions& options,
                     const std::vector<SourceFile>& files,
                     const CheckShard& shard) {
  const IndexDigests digests =
      DigestsOf(source, directory, options.key, /*has_videos=*/true);
  std::string all = absl::StrCat(kIndexVersion, "\n", kMarkRules, "\n");
  for (const Digest& digest :
       {digests.sizes, digests.lengths, digests.limits}) {
    absl::StrAppend(&all, digest[0], ":", digest[1], "\n");
  }
  for (const SourceFile& file : files) {
    absl::StrAppend(&all, file.name.size(), ":", file.name);
  }
  return {DigestOf(all), files.size(), shard};
}

void Count(const FileScan& scan, ShardScanReport* report) {
  report->samples += scan.samples.size();
  report->images += scan.images.sizes.size();
  report->skipped += scan.report.skipped;
  report->num_bad += scan.report.bad.size() + scan.report.known_bad;
}

// The numbers of shards of the journals beside the index.
absl::StatusOr<std::set<uint32_t>> FindCounts(const std::string& index_path) {
  const std::filesystem::path path = index_path;
  const std::string prefix = path.filename().string() + ".scan-";
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
        ParseCheckShard(absl::StrCat(numbers.first, "/", numbers.second));
    if (shard.ok()) counts.insert(shard->count);
  }
  if (error) return FileError(error.value(), "list", folder.string());
  return counts;
}

absl::Status NotDone(const CheckShard& shard, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", shard.number, "/", shard.count, " ", what,
                   "; run `ballast-server index --shard ", shard.number, "/",
                   shard.count, "` to its end first"));
}

// The scans of all files, from the journals of `shards` shards; nullopt if none
// of them belongs to these files and this configuration.
absl::StatusOr<std::optional<std::vector<FileScan>>> ReadShards(
    const v1::Source& source, absl::string_view directory,
    const IndexOptions& options, const std::vector<SourceFile>& files,
    uint32_t shards) {
  const std::string path = IndexPath(source, directory);
  std::vector<std::optional<FileScan>> scans(files.size());
  bool any = false;
  absl::Status missing;
  for (uint32_t number = 1; number <= shards; ++number) {
    const CheckShard shard = {number, shards};
    const auto read =
        ScanJournal::Read(ScanJournalPath(path, shard),
                          KeyOf(source, directory, options, files, shard),
                          [&](NumberedScan scan) {
                            scans[scan.file] = std::move(scan.scan);
                            return absl::OkStatus();
                          });
    if (!read.ok() && !absl::IsNotFound(read.status())) return read.status();
    any = any || (read.ok() && *read);
    const CheckUnitRange range = UnitsOf(shard, files.size());
    uint64_t done = 0;
    for (uint64_t file = range.begin; file < range.end; ++file) {
      done += scans[file].has_value();
    }
    if (done < range.end - range.begin && missing.ok()) {
      missing = NotDone(shard, absl::StrCat("has scanned ", done, " of its ",
                                            range.end - range.begin, " files"));
    }
  }
  if (!any) return std::nullopt;
  BALLAST_RETURN_IF_ERROR(missing);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> now,
                           StampsOf(files, {0, files.size()}));
  std::vector<FileScan> all;
  for (uint32_t number = 1; number <= shards; ++number) {
    const CheckUnitRange range = UnitsOf({number, shards}, files.size());
    for (uint64_t file = range.begin; file < range.end; ++file) {
      if (!(now[file] == scans[file]->stamp)) {
        return NotDone({number, shards},
                       absl::StrCat("scanned ", files[file].name,
                                    ", which has changed since"));
      }
      all.push_back(*std::move(scans[file]));
    }
  }
  return all;
}

void RemoveJournals(const std::string& index_path,
                    const std::set<uint32_t>& counts) {
  for (const uint32_t shards : counts) {
    for (uint32_t number = 1; number <= shards; ++number) {
      std::error_code ignored;  // a journal of another state is harmless
      std::filesystem::remove(ScanJournalPath(index_path, {number, shards}),
                              ignored);
    }
  }
}

}  // namespace

absl::StatusOr<ShardScanReport> ScanShard(const v1::Source& source,
                                          absl::string_view directory,
                                          const IndexOptions& options,
                                          const CheckShard& shard) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<SourceScan> scan,
                           SourceScan::Create(source, directory, &options));
  const std::vector<SourceFile>& files = scan->files();
  const CheckUnitRange range = UnitsOf(shard, files.size());
  // Of the files that the journal has; only the last scan of each counts.
  std::map<uint64_t, FileScan> recorded;
  BALLAST_ASSIGN_OR_RETURN(
      ScanJournal journal,
      ScanJournal::Open(ScanJournalPath(IndexPath(source, directory), shard),
                        KeyOf(source, directory, options, files, shard),
                        [&](NumberedScan found) {
                          recorded.insert_or_assign(found.file,
                                                    std::move(found.scan));
                          return absl::OkStatus();
                        }));
  ShardScanReport report;
  report.files = range.end - range.begin;
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> now,
                           StampsOf(files, range));
  std::vector<size_t> wanted;
  for (uint64_t file = range.begin; file < range.end; ++file) {
    const auto found = recorded.find(file);
    if (found == recorded.end() ||
        !(found->second.stamp == now[file - range.begin])) {
      wanted.push_back(file);
      continue;
    }
    ++report.resumed;
    Count(found->second, &report);
  }
  recorded.clear();
  std::map<uint64_t, std::vector<BadSample>> bad;
  BALLAST_RETURN_IF_ERROR(scan->Run(wanted, [&](size_t file, FileScan found) {
    Count(found, &report);
    bad[file] = found.report.bad;
    return journal.Append(file, found);
  }));
  BALLAST_RETURN_IF_ERROR(journal.Sync());
  for (auto& [file, samples] : bad) {
    std::move(samples.begin(), samples.end(), std::back_inserter(report.bad));
  }
  return report;
}

absl::StatusOr<IndexReport> MergeScans(const v1::Source& source,
                                       absl::string_view directory,
                                       const IndexOptions& options) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  const std::string path = IndexPath(source, directory);
  BALLAST_ASSIGN_OR_RETURN(const std::set<uint32_t> counts, FindCounts(path));
  // Takes the first number of shards that is complete; else names what the
  // first of all lacks.
  absl::Status incomplete;
  for (const uint32_t shards : counts) {
    auto scans = ReadShards(source, directory, options, files, shards);
    if (absl::IsFailedPrecondition(scans.status())) {
      if (incomplete.ok()) incomplete = scans.status();
      continue;
    }
    BALLAST_RETURN_IF_ERROR(scans.status());
    if (!scans->has_value()) continue;
    BALLAST_ASSIGN_OR_RETURN(
        IndexReport report,
        WriteAssembled(source, directory, options, **std::move(scans)));
    if (!options.accept || options.accept(report)) {
      RemoveJournals(path, counts);
    }
    return report;
  }
  BALLAST_RETURN_IF_ERROR(incomplete);
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      ": no scans of these files with this configuration; run `ballast-server "
      "index` with every --shard I/N first"));
}

}  // namespace ballast
