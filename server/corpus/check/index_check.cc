#include "server/corpus/check/index_check.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "server/corpus/check/check_journal.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/index/progress_meter.h"

namespace ballast {
namespace {

// The results of a unit while it is checked.
struct UnitResult {
  std::vector<uint64_t> content_hashes;
  std::vector<ImageCheckResult> results;
  std::vector<UncleanImage> unclean;

  void Add(uint64_t hash, ImageCheckResult result) {
    content_hashes.push_back(hash);
    results.push_back(result);
  }
};

// Checks the units of a shard, several at a time.
class Check {
 public:
  Check(const FileSource* source, const CheckOptions* options,
        std::vector<CheckUnit> units, CheckJournal journal)
      : source_(*source),
        options_(*options),
        units_(std::move(units)),
        range_(UnitsOf(options->shard, units_.size())),
        next_(range_.begin),
        progress_(BytesToCheck(journal), options->progress),
        journal_(std::move(journal)) {}

  absl::StatusOr<CheckReport> Run() {
    Begin();
    const size_t count = std::min<size_t>(
        std::max<uint32_t>(options_.threads, 1), range_.end - range_.begin);
    std::vector<std::thread> threads;
    for (size_t i = 1; i < count; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&mutex_);
    BALLAST_RETURN_IF_ERROR(failure_);
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
  uint64_t BytesToCheck(const CheckJournal& journal) const {
    uint64_t bytes = 0;
    for (uint64_t i = range_.begin; i < range_.end; ++i) {
      if (!journal.done()[i]) bytes += units_[i].bytes;
    }
    return bytes;
  }

  // Counts what earlier runs have recorded.
  void Begin() {
    MutexLock lock(&mutex_);
    done_ = journal_.done();
    for (uint64_t i = range_.begin; i < range_.end; ++i) {
      report_.images += units_[i].images;
      if (done_[i]) report_.resumed += units_[i].images;
    }
    const auto recorded = [&](ImageCheckResult result) {
      return journal_.results()[static_cast<size_t>(result)];
    };
    report_.clean = recorded(ImageCheckResult::kClean);
    report_.unsound = recorded(ImageCheckResult::kUnsound);
    report_.changed = recorded(ImageCheckResult::kChanged);
  }

  void Work() {
    while (!failed_) {
      const uint64_t unit = next_++;
      if (unit >= range_.end) return;
      if (done_[unit]) continue;
      absl::StatusOr<UnitResult> result = CheckUnitOf(units_[unit]);
      Record(unit, std::move(result));
    }
  }

  absl::StatusOr<UnitResult> CheckUnitOf(const CheckUnit& unit) const {
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
      if (result->unclean.size() >= CheckReport::kMostListed) return;
      result->unclean.push_back(
          {record, static_cast<uint32_t>(i), std::move(reason)});
    };
    if (!sample.ok()) {
      unclean(ImageCheckResult::kChanged, sample.fault().reason());
      return;
    }
    const std::string& bytes = sample->images[i];
    const auto where = [&] {
      return absl::StrCat(sample->name, ": image ", i, ": ");
    };
    if (bytes.size() != mark.bytes()) {
      unclean(ImageCheckResult::kChanged,
              absl::StrCat(where(), bytes.size(), " bytes, the index has ",
                           mark.bytes()));
      return;
    }
    const absl::Status status = options_.check(bytes);
    if (status.ok()) {
      result->Add(Checksum(bytes), ImageCheckResult::kClean);
    } else {
      unclean(ImageCheckResult::kUnsound,
              absl::StrCat(where(), status.message()));
    }
  }

  void Record(uint64_t unit, absl::StatusOr<UnitResult> result) {
    MutexLock lock(&mutex_);
    if (!result.ok()) {
      if (unread_.ok()) unread_ = result.status();
      ++units_unread_;
      return;
    }
    const absl::Status written =
        journal_.Append({unit, result->content_hashes, result->results});
    if (!written.ok()) {
      failure_ = written;
      failed_ = true;
      return;
    }
    uint64_t bad = 0;
    for (const ImageCheckResult found : result->results) {
      report_.clean += found == ImageCheckResult::kClean;
      report_.unsound += found == ImageCheckResult::kUnsound;
      report_.changed += found == ImageCheckResult::kChanged;
      bad += found != ImageCheckResult::kClean;
    }
    for (UncleanImage& image : result->unclean) {
      if (report_.unclean.size() >= CheckReport::kMostListed) break;
      report_.unclean.push_back(std::move(image));
    }
    progress_.Add(units_[unit].bytes, result->results.size(), bad);
  }

  const FileSource& source_;
  const CheckOptions& options_;
  const std::vector<CheckUnit> units_;  // of all shards
  const CheckUnitRange range_;          // of this one
  std::vector<bool> done_;              // fixed before the threads begin
  std::atomic<uint64_t> next_;
  std::atomic<bool> failed_{false};
  ProgressMeter progress_;
  Mutex mutex_;
  CheckJournal journal_ ABSL_GUARDED_BY(mutex_);
  CheckReport report_ ABSL_GUARDED_BY(mutex_);
  absl::Status unread_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t units_unread_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<CheckReport> CheckImages(const FileSource& source,
                                        const CheckOptions& options) {
  const IndexFile& index = source.index_file();
  BALLAST_RETURN_IF_ERROR(index.Verify(nullptr));
  std::vector<CheckUnit> units = PlanCheck(index, options.unit_size);
  if (units.empty()) return CheckReport();
  BALLAST_ASSIGN_OR_RETURN(
      CheckJournal journal,
      CheckJournal::Open(JournalPath(index.path(), options.shard),
                         {index.checksum(), units.size(), options.shard}));
  return Check(&source, &options, std::move(units), std::move(journal)).Run();
}

}  // namespace ballast
