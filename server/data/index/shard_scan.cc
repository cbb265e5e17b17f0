#include "server/data/index/shard_scan.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/index/index_builder.h"
#include "server/data/index/scan_record.pb.h"
#include "server/data/source_files.h"
#include "server/files/file.h"
#include "server/files/storage.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// The scan of a source's file.
struct NumberedScan {
  uint64_t file = 0;  // its number among the files
  FileScan scan;
};

template <typename Entry>
std::string GetBytes(const std::vector<Entry>& entries) {
  return std::string(reinterpret_cast<const char*>(entries.data()),
                     entries.size() * sizeof(Entry));
}

// False if the bytes are no whole number of entries.
template <typename Entry>
bool TakeEntries(const std::string& bytes, std::vector<Entry>* entries) {
  if (bytes.size() % sizeof(Entry) != 0) return false;
  entries->resize(bytes.size() / sizeof(Entry));
  if (!bytes.empty()) {
    std::memcpy(static_cast<void*>(entries->data()), bytes.data(),
                bytes.size());
  }
  return true;
}

void Put(const std::vector<IndexSampleRecord>& records, const MediaFacts& facts,
         v1::ScanRecord::Samples* out) {
  out->set_records(GetBytes(records));
  out->set_sizes(GetBytes(facts.sizes));
  out->set_marks(GetBytes(facts.marks));
  out->set_hashes(GetBytes(facts.content_hashes));
  out->set_videos(GetBytes(facts.streams));
  out->set_video_samples(GetBytes(facts.stream_samples));
  out->set_video_hashes(GetBytes(facts.stream_hashes));
  out->set_times(GetBytes(facts.times));
}

absl::Status Take(const v1::ScanRecord::Samples& from,
                  std::vector<IndexSampleRecord>* records, MediaFacts* facts) {
  const auto times_of = [](const std::vector<StreamFacts>& videos) {
    size_t times = 0;
    for (const StreamFacts& video : videos) times += video.times();
    return times;
  };
  if (!TakeEntries(from.records(), records) ||
      !TakeEntries(from.sizes(), &facts->sizes) ||
      !TakeEntries(from.marks(), &facts->marks) ||
      !TakeEntries(from.hashes(), &facts->content_hashes) ||
      !TakeEntries(from.videos(), &facts->streams) ||
      !TakeEntries(from.video_samples(), &facts->stream_samples) ||
      !TakeEntries(from.video_hashes(), &facts->stream_hashes) ||
      !TakeEntries(from.times(), &facts->times) ||
      facts->stream_samples.size() != facts->streams.size() ||
      facts->stream_hashes.size() > facts->streams.size() ||
      !std::is_sorted(facts->stream_samples.begin(),
                      facts->stream_samples.end()) ||
      (!facts->stream_samples.empty() &&
       facts->stream_samples.back() >= records->size()) ||
      facts->times.size() != times_of(facts->streams) ||
      facts->marks.size() != facts->sizes.size() ||
      facts->content_hashes.size() > facts->sizes.size()) {
    return absl::InvalidArgumentError("samples that no scan writes");
  }
  for (const IndexSampleRecord& record : *records) {
    const uint64_t all = facts->sizes.size();
    if (record.first_image > all ||
        record.num_images > all - record.first_image) {
      return absl::InvalidArgumentError("a sample whose images are not there");
    }
  }
  return absl::OkStatus();
}

// A scan as bytes, for this version alone. Errors: FAILED_PRECONDITION (over
// 2 GiB, some 30 million samples of one file).
absl::StatusOr<std::string> WriteScan(uint64_t file, const FileScan& scan) {
  v1::ScanRecord record;
  record.set_file(file);
  record.set_name(scan.name);
  record.set_size(scan.stamp.size);
  record.set_mtime_ns(scan.stamp.mtime_ns);
  Put(scan.samples, scan.facts, record.mutable_samples());
  Put(scan.left_out, scan.left_out_facts, record.mutable_left_out());
  record.set_media_time_ns(scan.media_time_ns);
  record.set_unreadable(scan.unreadable);
  record.set_skipped(scan.report.skipped);
  record.set_reused_files(scan.report.reused_files);
  record.set_reused_samples(scan.report.reused_samples);
  record.set_reused_lengths(scan.report.reused_lengths);
  record.set_known_bad(scan.report.known_bad);
  record.set_filtered(scan.report.filtered);
  for (const auto& [extension, count] : scan.report.ignored) {
    v1::ScanRecord::Ignored& ignored = *record.add_ignored();
    ignored.set_extension(extension);
    ignored.set_count(count);
  }
  for (const auto& [cause, samples] : scan.report.unlearnt) {
    v1::ScanRecord::Unlearnt& unlearnt = *record.add_unlearnt();
    unlearnt.set_cause(cause);
    unlearnt.set_count(samples.count);
    unlearnt.set_first(samples.first);
  }
  for (const BadSample& bad : scan.report.bad) {
    v1::ScanRecord::Bad& out = *record.add_bad();
    out.set_offset(bad.offset);
    out.set_key(bad.key);
    out.set_reason(bad.reason);
    out.set_kind(bad.kind);
    out.set_has_record(bad.has_record);
  }
  if (record.ByteSizeLong() > INT_MAX) {
    return absl::FailedPreconditionError(absl::StrCat(
        scan.name, ": ", scan.samples.size(),
        " samples, too many of one file for a shard; split the file, or index "
        "without --shard"));
  }
  return record.SerializeAsString();
}

// Any bytes are safe. Errors: INVALID_ARGUMENT.
absl::StatusOr<NumberedScan> ReadScan(absl::string_view bytes) {
  v1::ScanRecord record;
  if (bytes.size() > INT_MAX ||
      !record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("not a scan");
  }
  NumberedScan result;
  result.file = record.file();
  FileScan& scan = result.scan;
  scan.name = record.name();
  scan.stamp.size = record.size();
  scan.stamp.mtime_ns = record.mtime_ns();
  BALLAST_RETURN_IF_ERROR(Take(record.samples(), &scan.samples, &scan.facts));
  BALLAST_RETURN_IF_ERROR(
      Take(record.left_out(), &scan.left_out, &scan.left_out_facts));
  scan.media_time_ns = record.media_time_ns();
  scan.unreadable = record.unreadable();
  scan.report.skipped = record.skipped();
  scan.report.reused_files = record.reused_files();
  scan.report.reused_samples = record.reused_samples();
  scan.report.reused_lengths = record.reused_lengths();
  scan.report.known_bad = record.known_bad();
  scan.report.filtered = record.filtered();
  for (const v1::ScanRecord::Ignored& ignored : record.ignored()) {
    scan.report.ignored[ignored.extension()] += ignored.count();
  }
  for (const v1::ScanRecord::Unlearnt& unlearnt : record.unlearnt()) {
    AddUnlearnt(unlearnt.cause(), {unlearnt.count(), unlearnt.first()},
                &scan.report);
  }
  for (const v1::ScanRecord::Bad& bad : record.bad()) {
    scan.report.bad.push_back({scan.name, bad.offset(), bad.key(), bad.reason(),
                               bad.kind(), bad.has_record()});
  }
  return result;
}

// The stamps that the files of a range have now.
absl::StatusOr<std::vector<FileStamp>> GetStamps(
    const std::vector<SourceFile>& files, const UnitRange& range) {
  std::vector<std::string> paths;
  for (uint64_t file = range.begin; file < range.end; ++file) {
    paths.push_back(files[file].path);
  }
  return Storage::OfProcess().StampAll(paths);
}

// What a journal belongs to: the version and keys of the index, the shard and
// all files.
std::string GetKey(const v1::Source& source, absl::string_view directory,
                   const IndexOptions& options,
                   const std::vector<SourceFile>& files, const Shard& shard) {
  const IndexDigests digests =
      GetDigests(source, directory, options.key, /*has_videos=*/true);
  std::string all = absl::StrCat(kScanJournal, "\n", kIndexVersion, "\n",
                                 kMarkRules, "\n", options.hash ? "hashed" : "",
                                 "\n", shard.number, "/", shard.count, "\n");
  for (const Digest& digest :
       {digests.sizes, digests.lengths, digests.limits}) {
    absl::StrAppend(&all, digest[0], ":", digest[1], "\n");
  }
  for (const SourceFile& file : files) {
    absl::StrAppend(&all, file.name.size(), ":", file.name);
  }
  return all;
}

// Takes the scans of a journal of `files` files.
OnJournalRecord TakeScans(uint64_t files,
                          std::function<void(NumberedScan scan)> take) {
  return [files, take = std::move(take)](absl::string_view record) {
    BALLAST_ASSIGN_OR_RETURN(NumberedScan scan, ReadScan(record));
    if (scan.file >= files) {
      return absl::InvalidArgumentError("a file that is not there");
    }
    take(std::move(scan));
    return absl::OkStatus();
  };
}

void Count(const FileScan& scan, ShardScanReport* report) {
  report->samples += scan.samples.size();
  report->images += scan.facts.sizes.size();
  report->skipped += scan.report.skipped;
  report->num_bad += scan.report.bad.size() + scan.report.known_bad;
}

absl::Status NotDone(const Shard& shard, absl::string_view what) {
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
  const std::string path = IndexPath(source, directory, options.key);
  std::vector<std::optional<FileScan>> scans(files.size());
  bool any = false;
  absl::Status missing;
  for (uint32_t number = 1; number <= shards; ++number) {
    const Shard shard = {number, shards};
    BALLAST_ASSIGN_OR_RETURN(
        const bool read,
        Journal::Read(JournalPath(path, kScanJournal, shard),
                      GetKey(source, directory, options, files, shard),
                      TakeScans(files.size(), [&](NumberedScan scan) {
                        scans[scan.file] = std::move(scan.scan);
                      })));
    any = any || read;
    const UnitRange range = GetUnits(shard, files.size());
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
                           GetStamps(files, {0, files.size()}));
  std::vector<FileScan> all;
  for (uint32_t number = 1; number <= shards; ++number) {
    const UnitRange range = GetUnits({number, shards}, files.size());
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

}  // namespace

absl::StatusOr<ShardScanReport> ScanShard(const v1::Source& source,
                                          absl::string_view directory,
                                          const IndexOptions& options,
                                          const Shard& shard) {
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<SourceScan> scan,
                           SourceScan::Create(source, directory, &options));
  const std::vector<SourceFile>& files = scan->files();
  const UnitRange range = GetUnits(shard, files.size());
  // Of the files that the journal has; only the last scan of each counts.
  std::map<uint64_t, FileScan> recorded;
  BALLAST_ASSIGN_OR_RETURN(
      Journal journal,
      Journal::Open(JournalPath(IndexPath(source, directory, options.key),
                                kScanJournal, shard),
                    GetKey(source, directory, options, files, shard),
                    TakeScans(files.size(), [&](NumberedScan found) {
                      recorded.insert_or_assign(found.file,
                                                std::move(found.scan));
                    })));
  ShardScanReport report;
  report.files = range.end - range.begin;
  BALLAST_ASSIGN_OR_RETURN(const std::vector<FileStamp> now,
                           GetStamps(files, range));
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
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes, WriteScan(file, found));
    return journal.Append(bytes);
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
  const std::string path = IndexPath(source, directory, options.key);
  BALLAST_ASSIGN_OR_RETURN(const std::set<uint32_t> counts,
                           FindShardCounts(path, kScanJournal));
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
      RemoveJournals(path, kScanJournal, counts);
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
