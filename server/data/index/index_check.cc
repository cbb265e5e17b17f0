#include "server/data/index/index_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/index_writer.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// The results of a unit, in the order of its images to check.
struct UnitResult {
  std::vector<uint64_t> content_hashes;
  std::vector<ImageCheckResult> results;
  std::vector<UncleanImage> unclean;  // not recorded

  void Add(uint64_t hash, ImageCheckResult result) {
    content_hashes.push_back(hash);
    results.push_back(result);
  }
};

// What a journal belongs to. The header's checksum identifies the index.
std::string GetKey(const IndexFile& index, uint64_t num_units,
                   const Shard& shard) {
  return absl::StrCat(kCheckJournal, "\n", kMarkRules, "\n", index.checksum(),
                      "\n", num_units, "\n", shard.number, "/", shard.count);
}

// A unit as bytes: its number and its number of images (u64 each), a content
// hash for each image (u64), and a result for each (u8).
std::string WriteUnit(uint64_t unit, const UnitResult& result) {
  const uint64_t head[] = {unit, result.results.size()};
  const auto bytes = [](const auto* begin, size_t count) {
    return absl::string_view(reinterpret_cast<const char*>(begin),
                             count * sizeof(*begin));
  };
  return absl::StrCat(
      bytes(head, 2),
      bytes(result.content_hashes.data(), result.content_hashes.size()),
      bytes(result.results.data(), result.results.size()));
}

// Any bytes are safe. Errors: INVALID_ARGUMENT.
absl::Status ReadUnit(absl::string_view bytes,
                      const std::vector<CheckUnit>& units, uint64_t* unit,
                      UnitResult* result) {
  uint64_t head[2];
  const absl::Status bad =
      absl::InvalidArgumentError("a unit that no check writes");
  if (bytes.size() < sizeof(head)) return bad;
  std::memcpy(head, bytes.data(), sizeof(head));
  bytes.remove_prefix(sizeof(head));
  if (head[0] >= units.size() || head[1] != units[head[0]].images ||
      bytes.size() != head[1] * (sizeof(uint64_t) + 1)) {
    return bad;
  }
  *unit = head[0];
  result->content_hashes.resize(head[1]);
  result->results.resize(head[1]);
  const size_t hash_bytes = head[1] * sizeof(uint64_t);
  bytes.copy(reinterpret_cast<char*>(result->content_hashes.data()),
             hash_bytes);
  bytes.copy(reinterpret_cast<char*>(result->results.data()), head[1],
             hash_bytes);
  const bool is_valid = std::all_of(
      result->results.begin(), result->results.end(),
      [](ImageCheckResult r) { return r <= ImageCheckResult::kChanged; });
  return is_valid ? absl::OkStatus() : bad;
}

// The units that a check had recorded before, and its images by result.
struct Recorded {
  std::vector<bool> done;
  std::array<uint64_t, 4> results = {};
};

// Checks the units of a shard, several at a time.
class Check {
 public:
  Check(const FileSource* source, const CheckOptions* options,
        std::vector<CheckUnit> units, Recorded recorded, Journal journal)
      : source_(*source),
        options_(*options),
        units_(std::move(units)),
        range_(GetUnits(options->shard, units_.size())),
        recorded_(std::move(recorded)),
        progress_(BytesToCheck(), options->progress),
        journal_(std::move(journal)) {}

  absl::StatusOr<CheckReport> Run() {
    Begin();
    progress_.Add(0, 0, 0);
    BALLAST_RETURN_IF_ERROR(
        RunAll(range_.end - range_.begin, options_.threads, [this](size_t i) {
          const uint64_t unit = range_.begin + i;
          if (recorded_.done[unit]) return absl::OkStatus();
          return Record(unit, GetCheckUnit(units_[unit]));
        }));
    MutexLock lock(&mutex_);
    BALLAST_RETURN_IF_ERROR(journal_.Sync());
    if (!unread_.ok()) {
      return absl::UnavailableError(absl::StrCat(
          units_unread_, " of ", range_.end - range_.begin,
          " parts of the check had a sample that could not be read, and are "
          "not recorded; run the command again once they can. The first: ",
          unread_.message()));
    }
    std::sort(report_.unclean.begin(), report_.unclean.end(),
              [](const UncleanImage& a, const UncleanImage& b) {
                return std::pair(a.record, a.image) <
                       std::pair(b.record, b.image);
              });
    return report_;
  }

 private:
  uint64_t BytesToCheck() const {
    uint64_t bytes = 0;
    for (uint64_t i = range_.begin; i < range_.end; ++i) {
      if (!recorded_.done[i]) bytes += units_[i].bytes;
    }
    return bytes;
  }

  // Counts what earlier runs have recorded.
  void Begin() {
    MutexLock lock(&mutex_);
    for (uint64_t i = range_.begin; i < range_.end; ++i) {
      report_.images += units_[i].images;
      if (recorded_.done[i]) report_.resumed += units_[i].images;
    }
    const auto recorded = [&](ImageCheckResult result) {
      return recorded_.results[static_cast<size_t>(result)];
    };
    report_.clean = recorded(ImageCheckResult::kClean);
    report_.unsound = recorded(ImageCheckResult::kUnsound);
    report_.changed = recorded(ImageCheckResult::kChanged);
  }

  absl::StatusOr<UnitResult> GetCheckUnit(const CheckUnit& unit) const {
    UnitResult result;
    for (uint64_t record = unit.begin; record < unit.end; ++record) {
      const absl::Span<const ImageMark> marks =
          source_.index_file().marks(record);
      if (std::none_of(marks.begin(), marks.end(), NeedsCheck)) continue;
      BALLAST_ASSIGN_OR_RETURN(
          const FaultOr<RawSample> sample,
          source_.ReadNumber(record, {.text = false, .images = true}));
      for (size_t i = 0; i < marks.size(); ++i) {
        if (NeedsCheck(marks[i])) {
          CheckOne(record, i, marks[i], sample, &result);
        }
      }
    }
    return result;
  }

  void CheckOne(uint64_t record, size_t i, ImageMark mark,
                const FaultOr<RawSample>& sample, UnitResult* result) const {
    const auto unclean = [&](ImageCheckResult found, std::string reason) {
      result->Add(0, found);
      if (result->unclean.size() >= CheckReport::kMaxListed) return;
      result->unclean.push_back(
          {record, static_cast<uint32_t>(i), std::move(reason)});
    };
    if (!sample.ok()) {
      unclean(ImageCheckResult::kChanged, sample.fault().reason());
      return;
    }
    // Of a kind's media, whatever is between them.
    const absl::string_view bytes = sample->of(MediumKind::kImage)[i]->file();
    const auto where = [&] {
      return absl::StrCat(sample->name, ": image ", i, ": ");
    };
    if (bytes.size() != mark.bytes()) {
      unclean(ImageCheckResult::kChanged,
              absl::StrCat(where(), bytes.size(), " bytes, the index has ",
                           mark.bytes()));
      return;
    }
    const uint64_t hash = Checksum(bytes);
    if (source_.index_file().is_hashed() &&
        hash != source_.index_file().hashes(record)[i]) {
      unclean(ImageCheckResult::kChanged,
              absl::StrCat(where(), "its content hash is not the index's"));
      return;
    }
    const absl::Status status = options_.check(bytes);
    if (status.ok()) {
      result->Add(hash, ImageCheckResult::kClean);
    } else {
      unclean(ImageCheckResult::kUnsound,
              absl::StrCat(where(), status.message()));
    }
  }

  // Errors: of the journal alone; the check goes on past what it cannot read.
  absl::Status Record(uint64_t unit, absl::StatusOr<UnitResult> result) {
    MutexLock lock(&mutex_);
    if (!result.ok()) {
      if (unread_.ok()) unread_ = result.status();
      ++units_unread_;
      return absl::OkStatus();
    }
    BALLAST_RETURN_IF_ERROR(journal_.Append(WriteUnit(unit, *result)));
    uint64_t bad = 0;
    for (const ImageCheckResult found : result->results) {
      report_.clean += found == ImageCheckResult::kClean;
      report_.unsound += found == ImageCheckResult::kUnsound;
      report_.changed += found == ImageCheckResult::kChanged;
      bad += found != ImageCheckResult::kClean;
    }
    for (UncleanImage& image : result->unclean) {
      if (report_.unclean.size() >= CheckReport::kMaxListed) break;
      report_.unclean.push_back(std::move(image));
    }
    progress_.Add(units_[unit].bytes, result->results.size(), bad);
    return absl::OkStatus();
  }

  const FileSource& source_;
  const CheckOptions& options_;
  const std::vector<CheckUnit> units_;  // of all shards
  const UnitRange range_;               // of this one
  const Recorded recorded_;
  ProgressMeter progress_;
  Mutex mutex_;
  Journal journal_ ABSL_GUARDED_BY(mutex_);
  CheckReport report_ ABSL_GUARDED_BY(mutex_);
  absl::Status unread_ ABSL_GUARDED_BY(mutex_);
  uint64_t units_unread_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The result of each unit, from the journals of `shards` shards; nullopt if
// none of them belongs to this index. Errors: FAILED_PRECONDITION, naming a
// shard without a result.
absl::StatusOr<std::optional<std::vector<UnitResult>>> ReadShards(
    const IndexFile& index, const std::vector<CheckUnit>& units,
    uint32_t shards) {
  std::vector<UnitResult> all(units.size());
  bool any = false;
  absl::Status missing;
  for (uint32_t number = 1; number <= shards; ++number) {
    const Shard shard = {number, shards};
    BALLAST_ASSIGN_OR_RETURN(
        const bool read,
        Journal::Read(
            JournalPath(index.path(), kCheckJournal, shard),
            GetKey(index, units.size(), shard), [&](absl::string_view record) {
              uint64_t unit = 0;
              UnitResult result;
              BALLAST_RETURN_IF_ERROR(ReadUnit(record, units, &unit, &result));
              all[unit] = std::move(result);
              return absl::OkStatus();
            }));
    any = any || read;
    const UnitRange range = GetUnits(shard, units.size());
    uint64_t done = 0;
    for (uint64_t i = range.begin; i < range.end; ++i) {
      done += !all[i].results.empty();
    }
    if (done == range.end - range.begin || !missing.ok()) continue;
    missing = absl::FailedPreconditionError(
        absl::StrCat("shard ", number, "/", shards, " has checked ", done,
                     " of its ", range.end - range.begin,
                     " parts; run `ballast-server index --check --shard ",
                     number, "/", shards, "` to its end first"));
  }
  if (!any) return std::nullopt;
  BALLAST_RETURN_IF_ERROR(missing);
  return all;
}

// Errors: DATA_LOSS (damage).
absl::StatusOr<IndexContents> GetContents(const IndexFile& index) {
  IndexContents contents;
  contents.format = index.format();
  contents.is_hashed = index.is_hashed();
  contents.digests = index.digests();
  contents.group_starts.assign(index.group_starts().begin(),
                               index.group_starts().end());
  for (uint64_t i = 0; i < index.num_files(); ++i) {
    contents.files.push_back({std::string(index.file_name(i)),
                              index.file_stamp(i), index.file_unreadable(i),
                              index.media_time_ns(i)});
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
    BALLAST_ASSIGN_OR_RETURN(const auto videos, index.streams(i));
    append(videos, &contents.streams);
    contents.stream_records.resize(contents.streams.size(), i);
    BALLAST_ASSIGN_OR_RETURN(const auto hashes, index.stream_hashes(i));
    append(hashes, &contents.stream_hashes);
    BALLAST_ASSIGN_OR_RETURN(const FrameTimes times, index.times(i));
    append(times, &contents.times);
  }
  contents.content_hashes.resize(contents.images.size());
  return contents;
}

// Enters the results into the images that they belong to, in order.
void Enter(const std::vector<UnitResult>& results, IndexContents* contents) {
  size_t image = 0;
  for (const UnitResult& unit : results) {
    for (size_t i = 0; i < unit.results.size(); ++i, ++image) {
      while (!NeedsCheck(contents->marks[image])) ++image;
      contents->marks[image] =
          ImageMark::Marked(contents->marks[image].bytes(), unit.results[i]);
      if (!contents->is_hashed) {
        contents->content_hashes[image] = unit.content_hashes[i];
      }
    }
  }
}

}  // namespace

std::vector<CheckUnit> PlanCheck(const IndexFile& index,
                                 const CheckUnitSize& size) {
  std::vector<CheckUnit> units;
  CheckUnit unit;
  for (uint64_t record = 0; record < index.num_records(); ++record) {
    for (const ImageMark mark : index.marks(record)) {
      if (!NeedsCheck(mark)) continue;
      ++unit.images;
      unit.bytes += mark.bytes();
    }
    unit.end = record + 1;
    if (unit.images < size.images && unit.bytes < size.bytes) continue;
    units.push_back(unit);
    unit = {};
    unit.begin = record + 1;
  }
  if (unit.images > 0) units.push_back(unit);
  return units;
}

absl::StatusOr<CheckReport> CheckImages(const FileSource& source,
                                        const CheckOptions& options) {
  const IndexFile& index = source.index_file();
  BALLAST_RETURN_IF_ERROR(index.Verify(nullptr));
  std::vector<CheckUnit> units = PlanCheck(index, options.unit_size);
  if (units.empty()) return CheckReport();
  Recorded recorded;
  recorded.done.resize(units.size());
  const auto take = [&](absl::string_view record) -> absl::Status {
    uint64_t unit = 0;
    UnitResult result;
    BALLAST_RETURN_IF_ERROR(ReadUnit(record, units, &unit, &result));
    if (recorded.done[unit]) return absl::OkStatus();
    recorded.done[unit] = true;
    for (const ImageCheckResult each : result.results) {
      ++recorded.results[static_cast<size_t>(each)];
    }
    return absl::OkStatus();
  };
  BALLAST_ASSIGN_OR_RETURN(
      Journal journal,
      Journal::Open(JournalPath(index.path(), kCheckJournal, options.shard),
                    GetKey(index, units.size(), options.shard), take));
  return Check(&source, &options, std::move(units), std::move(recorded),
               std::move(journal))
      .Run();
}

absl::StatusOr<ImageMarkCounts> MergeChecks(const std::string& path,
                                            const CheckUnitSize& size) {
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const IndexFile> index,
                           IndexFile::Open(path));
  BALLAST_RETURN_IF_ERROR(index->Verify(nullptr));
  const std::vector<CheckUnit> units = PlanCheck(*index, size);
  if (units.empty()) return index->mark_counts();
  BALLAST_ASSIGN_OR_RETURN(const std::set<uint32_t> counts,
                           FindShardCounts(path, kCheckJournal));
  // Takes the first number of shards that is complete; else names what the
  // first of all lacks.
  std::optional<std::vector<UnitResult>> results;
  absl::Status incomplete = absl::FailedPreconditionError(absl::StrCat(
      path,
      ": no results of a check of this index; run `ballast-server "
      "index --check` with every --shard I/N first, after the index was "
      "built last"));
  bool any = false;
  for (const uint32_t shards : counts) {
    auto all = ReadShards(*index, units, shards);
    if (absl::IsFailedPrecondition(all.status())) {
      if (!std::exchange(any, true)) incomplete = all.status();
      continue;
    }
    BALLAST_RETURN_IF_ERROR(all.status());
    if (!all->has_value()) continue;
    results = **std::move(all);
    break;
  }
  if (!results.has_value()) return incomplete;
  BALLAST_ASSIGN_OR_RETURN(IndexContents contents, GetContents(*index));
  Enter(*results, &contents);
  BALLAST_RETURN_IF_ERROR(WriteIndex(path, contents));
  RemoveJournals(path, kCheckJournal, counts);
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const IndexFile> merged,
                           IndexFile::Open(path));
  return merged->mark_counts();
}

}  // namespace ballast
