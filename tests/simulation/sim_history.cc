#include "tests/simulation/sim_history.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/schedule/module.h"
#include "tests/simulation/sim_data.h"

namespace ballast {
namespace {

class Checker {
 public:
  Checker(const HistoryPromises& promises, const std::vector<RunHistory>& runs)
      : promises_(promises), runs_(runs) {}

  std::vector<std::string> Check() {
    uint64_t reached = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].start_step > reached) {
        Violation(absl::StrCat("start ", i, " begins at step ",
                               runs_[i].start_step, ", but only steps before ",
                               reached, " were trained"));
      }
      uint64_t least = promises_.steps;
      for (const RankHistory& rank : runs_[i].ranks) {
        where_ = absl::StrCat("start ", i, ", ",
                              std::string(ModuleName(rank.role.module())),
                              " rank ", rank.role.dp_rank());
        CheckBatches(runs_[i], rank);
        CheckEnd(runs_[i], rank, i + 1 == runs_.size());
        least = std::min(least, NextStep(runs_[i], rank));
      }
      reached = std::max(reached, least);
    }
    return violations_;
  }

 private:
  void Violation(std::string text) { violations_.push_back(std::move(text)); }

  uint64_t NextStep(const RunHistory& run, const RankHistory& rank) const {
    return run.start_step + rank.batches.size() / promises_.job.micro_batches;
  }

  int VersionAt(uint64_t step) const {
    const auto after = promises_.versions.upper_bound(step);
    return after == promises_.versions.begin() ? 0 : std::prev(after)->second;
  }

  void CheckBatches(const RunHistory& run, const RankHistory& rank) {
    uint64_t step = run.start_step;
    uint32_t micro_batch = 0;
    for (const TrainedBatch& batch : rank.batches) {
      const std::string name = absl::StrCat(where_, ", step ", batch.step,
                                            " micro-batch ", batch.micro_batch);
      if (batch.step != step || batch.micro_batch != micro_batch) {
        Violation(absl::StrCat(name, ": wanted step ", step, " micro-batch ",
                               micro_batch));
        return;
      }
      const ExpectedBatch& expected = ExpectedBatchOf(
          promises_.job, rank.role, step, micro_batch, VersionAt(step));
      if (batch.positions != expected.positions) {
        Violation(absl::StrCat(name, ": samples ",
                               absl::StrJoin(batch.positions, " "), ", wanted ",
                               absl::StrJoin(expected.positions, " ")));
      } else if (batch.placeholders != expected.placeholders) {
        Violation(absl::StrCat(
            name, ": placeholders ", absl::StrJoin(batch.placeholders, " "),
            ", wanted ", absl::StrJoin(expected.placeholders, " ")));
      } else if (batch.digest != expected.digest) {
        Violation(absl::StrCat(name, ": digest ", batch.digest, ", wanted ",
                               expected.digest));
      }
      if (++micro_batch == promises_.job.micro_batches) {
        micro_batch = 0;
        ++step;
      }
    }
  }

  void CheckEnd(const RunHistory& run, const RankHistory& rank, bool last) {
    if (absl::IsOutOfRange(rank.end)) {
      if (NextStep(run, rank) != promises_.steps) {
        Violation(absl::StrCat(where_, ": ended before step ",
                               NextStep(run, rank), ", wanted ",
                               promises_.steps));
      }
      return;
    }
    if (rank.killed) return;
    const bool refused =
        promises_.other_data &&
        std::any_of(run.ranks.begin(), run.ranks.end(), WasRefused);
    if (run.must_succeed && !refused) {
      Violation(absl::StrCat(where_,
                             ": no fault could stop it, but it ended "
                             "with ",
                             rank.end.ToString()));
    } else if (!IsPromised(rank.end)) {
      Violation(absl::StrCat(where_, ": ended with ", rank.end.ToString()));
    } else if (last) {
      Violation(absl::StrCat(
          where_, ": did not get well again: ", rank.end.ToString()));
    }
  }

  bool IsPromised(const absl::Status& end) const {
    return absl::IsUnavailable(end) || absl::IsDeadlineExceeded(end) ||
           (promises_.other_data && IsOtherFingerprint(end));
  }

  // DATA_LOSS is a schedule's.
  static bool IsOtherFingerprint(const absl::Status& end) {
    return absl::IsFailedPrecondition(end) ||
           (absl::IsDataLoss(end) &&
            absl::StrContains(end.message(), "has fingerprint"));
  }

  const HistoryPromises& promises_;
  const std::vector<RunHistory>& runs_;
  std::string where_;
  std::vector<std::string> violations_;
};

}  // namespace

std::vector<std::string> CheckHistory(const HistoryPromises& promises,
                                      const std::vector<RunHistory>& runs) {
  return Checker(promises, runs).Check();
}

}  // namespace ballast
