#include "server/schedule/context_reference.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// Indexes of samples in the order in which they are taken.
using Samples = std::vector<uint32_t>;

// The reference allows this difference of loads.
constexpr double kDelta = 0.05;

class Reference {
 public:
  Reference(const std::vector<uint32_t>& lengths, uint32_t ranks,
            uint64_t tokens_a_rank)
      : lengths_(lengths), ranks_(ranks), tokens_a_rank_(tokens_a_rank) {}

  // Forms the next group of the samples; leaves the others in `samples`.
  absl::StatusOr<Groups> NextGroup(Samples* samples) {
    of_rank_.assign(ranks_, {});
    times_.assign(ranks_, 0);
    group_of_.assign(ranks_, kNone);
    groups_.clear();
    std::vector<std::deque<uint32_t>> buckets = MakeBuckets(*samples);
    if (!Assign(&buckets)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "sample ", samples->front(), " of ", lengths_[samples->front()],
          " tokens needs ", RanksNeeded(samples->front()), " ranks of ",
          tokens_a_rank_, " tokens; wanted at most ", ranks_));
    }
    samples->clear();
    for (const auto& bucket : buckets) {
      samples->insert(samples->end(), bucket.begin(), bucket.end());
    }
    Trim(samples);
    while (std::any_of(of_rank_.begin(), of_rank_.end(),
                       [](const auto& list) { return list.empty(); })) {
      BALLAST_RETURN_IF_ERROR(FillEmpty());
    }
    return of_rank_;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Group {
    std::vector<uint32_t> members;  // ranks
    uint32_t size = 0;
  };

  uint32_t RanksNeeded(uint32_t i) const {
    const double times =
        static_cast<double>(lengths_[i]) / static_cast<double>(tokens_a_rank_);
    return static_cast<uint32_t>(
        std::max(1.0, std::exp2(std::ceil(std::log2(times)))));
  }

  double Work(uint32_t i, uint32_t ranks) const {
    return static_cast<double>(uint64_t{lengths_[i]} * lengths_[i]) / ranks;
  }
  double Work(uint32_t i) const { return Work(i, RanksNeeded(i)); }

  std::vector<std::deque<uint32_t>> MakeBuckets(const Samples& samples) const {
    std::set<uint32_t> sizes;
    double total = 0;
    for (const uint32_t i : samples) {
      sizes.insert(RanksNeeded(i));
      total += Work(i);
    }
    const double target = total / static_cast<double>(sizes.size());
    std::vector<std::deque<uint32_t>> buckets;
    std::deque<uint32_t> bucket;
    double work = 0;
    auto left = static_cast<int64_t>(sizes.size());
    for (size_t k = 0; k < samples.size(); ++k) {
      const double more = Work(samples[k]);
      if (!bucket.empty() &&
          (work + more > target * 1.1 ||
           static_cast<int64_t>(samples.size() - k) <=
               left - static_cast<int64_t>(buckets.size()))) {
        buckets.push_back(std::move(bucket));
        bucket.clear();
        work = 0;
        --left;
      }
      bucket.push_back(samples[k]);
      work += more;
    }
    if (!bucket.empty()) buckets.push_back(std::move(bucket));
    return buckets;
  }

  double Largest() const {
    return *std::max_element(times_.begin(), times_.end());
  }
  double Least() const {
    return *std::min_element(times_.begin(), times_.end());
  }

  std::vector<uint32_t> FreeRanks() const {
    std::vector<uint32_t> free;
    for (uint32_t r = 0; r < ranks_; ++r) {
      if (group_of_[r] == kNone) free.push_back(r);
    }
    return free;
  }

  // The group of so many ranks whose busiest rank has the least load.
  uint32_t FindGroup(uint32_t size) const {
    uint32_t found = kNone;
    double least = 0;
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].size != size) continue;
      double load = 0;
      for (const uint32_t r : groups_[g].members) {
        load = std::max(load, times_[r]);
      }
      if (found == kNone || load < least) {
        found = g;
        least = load;
      }
    }
    return found;
  }

  // Gives samples to ranks until none can be placed or, once packs get
  // narrower, the ranks are even. Returns false if not even one has a place.
  bool Assign(std::vector<std::deque<uint32_t>>* buckets) {
    bool placed = false, checks = false;
    uint32_t first_size = 0;
    while (!buckets->empty()) {
      const size_t free = FreeRanks().size();
      auto from = std::find_if(
          buckets->begin(), buckets->end(), [&](const auto& bucket) {
            if (bucket.empty()) return false;
            const uint32_t size = RanksNeeded(bucket.front());
            return FindGroup(size) != kNone || free >= size;
          });
      if (from == buckets->end()) break;
      const uint32_t i = from->front();
      const uint32_t size = RanksNeeded(i);
      if (!placed) first_size = size;
      placed = true;
      for (const uint32_t r : groups_[ChooseGroup(size)].members) {
        of_rank_[r].push_back(i);
        times_[r] += Work(i);
      }
      from->pop_front();
      while (!buckets->empty() && buckets->front().empty()) {
        buckets->erase(buckets->begin());
      }
      checks = checks || size < first_size;
      if (checks && !buckets->empty() &&
          Largest() - Least() <= kDelta * Largest()) {
        break;
      }
    }
    return placed;
  }

  // An existing group, or a new one if that has less load.
  uint32_t ChooseGroup(uint32_t size) {
    const uint32_t found = FindGroup(size);
    std::vector<uint32_t> free = FreeRanks();
    if (free.size() < size) return found;
    // Free ranks have no load.
    if (found != kNone) {
      double load = 0;
      for (const uint32_t r : groups_[found].members) {
        load = std::max(load, times_[r]);
      }
      if (load <= 0) return found;
    }
    free.resize(size);
    for (const uint32_t r : free) group_of_[r] = groups_.size();
    groups_.push_back({std::move(free), size});
    return groups_.size() - 1;
  }

  // Takes the last sample from the busiest group while that evens out the
  // ranks.
  void Trim(Samples* left) {
    while (true) {
      const double slack = Largest() - Least();
      if (slack <= kDelta * Largest() || Least() == 0) return;
      const uint32_t busiest =
          std::max_element(times_.begin(), times_.end()) - times_.begin();
      if (of_rank_[busiest].size() <= 1) return;
      const uint32_t i = of_rank_[busiest].back();
      const std::vector<uint32_t> members = groups_[group_of_[busiest]].members;
      std::vector<double> before = times_;
      for (const uint32_t r : members) times_[r] -= Work(i);
      if (Largest() - Least() >= slack) {
        times_ = std::move(before);
        return;
      }
      for (const uint32_t r : members) of_rank_[r].pop_back();
      left->push_back(i);
    }
  }

  // Doubles the first of the smallest groups, and moves the ranks after it.
  absl::Status FillEmpty() {
    uint32_t chosen = 0;
    for (uint32_t g = 1; g < groups_.size(); ++g) {
      if (groups_[g].size < groups_[chosen].size) chosen = g;
    }
    Group& group = groups_[chosen];
    const uint32_t size = std::min(group.size * 2, ranks_);
    const uint32_t more = size - group.size;
    const uint32_t first = group.members.front();
    const uint32_t last = group.members.back();
    uint32_t empty = 0;
    while (!of_rank_[empty].empty()) ++empty;
    Groups of_rank(ranks_);
    std::vector<double> times(ranks_, 0);
    const auto put = [&](uint32_t to, const Samples& list, double time) {
      of_rank[to] = list;
      times[to] = time;
    };
    const uint32_t pushed = empty > last + 1 ? empty - last - 1 : 0;
    if (more == 0 || uint64_t{last} + more + pushed >= ranks_) {
      return CannotFill();
    }
    for (uint32_t r = 0; r < first; ++r) put(r, of_rank_[r], times_[r]);
    const double shared = Work(of_rank_[last].front(), size);
    for (uint32_t r = first; r <= last + more; ++r) {
      put(r, of_rank_[last], shared);
    }
    for (uint32_t k = 0; k < pushed; ++k) {
      put(last + more + 1 + k, of_rank_[last + 1 + k], times_[last + 1 + k]);
    }
    std::set<uint32_t> had, has;
    for (const auto& list : of_rank_) had.insert(list.begin(), list.end());
    for (const auto& list : of_rank) has.insert(list.begin(), list.end());
    if (had != has) return CannotFill();
    of_rank_ = std::move(of_rank);
    times_ = std::move(times);
    group.size = size;
    group.members.resize(last + more - first + 1);
    std::iota(group.members.begin(), group.members.end(), first);
    for (uint32_t g = chosen + 1; g < groups_.size(); ++g) {
      for (uint32_t& r : groups_[g].members) r += more;
    }
    return absl::OkStatus();
  }

  static absl::Status CannotFill() {
    return absl::FailedPreconditionError(
        "the reference cannot give every rank a sample of these lengths; "
        "wanted fewer ranks, or more samples");
  }

  const std::vector<uint32_t>& lengths_;
  const uint32_t ranks_;
  const uint64_t tokens_a_rank_;
  // Of the present group, by rank.
  Groups of_rank_;
  std::vector<double> times_;
  std::vector<uint32_t> group_of_;
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<std::vector<Groups>> ReferenceContextGroups(
    const std::vector<uint32_t>& lengths, uint32_t ranks,
    uint64_t tokens_a_rank) {
  if (lengths.empty() || ranks == 0 || tokens_a_rank == 0 ||
      std::find(lengths.begin(), lengths.end(), 0u) != lengths.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", lengths.size(), " samples, ", ranks, " ranks and ",
        tokens_a_rank,
        " tokens a rank; wanted each, and every length, to be at least 1"));
  }
  Samples samples(lengths.size());
  std::iota(samples.begin(), samples.end(), 0);
  std::stable_sort(samples.begin(), samples.end(), [&](uint32_t a, uint32_t b) {
    return lengths[a] > lengths[b];
  });
  Reference reference(lengths, ranks, tokens_a_rank);
  std::vector<Groups> groups;
  while (!samples.empty()) {
    BALLAST_ASSIGN_OR_RETURN(Groups group, reference.NextGroup(&samples));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace ballast
