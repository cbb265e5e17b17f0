#include "server/schedule/presence.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace ballast {
namespace {

// A sample by its group and its index within the group.
struct Member {
  uint32_t group;
  uint32_t index;
};

struct Swap {
  Member donated;
  std::optional<Member> other;  // absent if the rank owns no sample
};

class Aligner {
 public:
  Aligner(const std::vector<double>& costs, const std::vector<bool>& has_media,
          uint32_t groups_per_rank, Groups* groups)
      : costs_(costs),
        has_media_(has_media),
        groups_per_rank_(groups_per_rank),
        groups_(*groups),
        loads_(GroupLoads(costs, *groups)) {}

  // Gives `rank` a sample with media; false when no other can spare one.
  bool Serve(uint32_t rank) {
    std::optional<Swap> best;
    double best_load = std::numeric_limits<double>::infinity();
    for (uint32_t donor = 0; donor < ranks(); ++donor) {
      const std::vector<Member> donated = WithMedia(donor);
      if (donor == rank || donated.size() < 2) continue;
      for (const Member& given : donated) {
        for (const std::optional<Member>& other : Others(rank)) {
          const double load = LargerLoad(rank, given, other);
          if (load < best_load) {
            best_load = load;
            best = Swap{given, other};
          }
        }
      }
    }
    if (!best) return false;
    Apply(rank, *best);
    return true;
  }

 private:
  uint32_t ranks() const { return groups_.size() / groups_per_rank_; }
  uint32_t sample(const Member& member) const {
    return groups_[member.group][member.index];
  }

  std::vector<Member> Members(uint32_t rank) const {
    std::vector<Member> members;
    for (uint32_t g = rank * groups_per_rank_;
         g < (rank + 1) * groups_per_rank_; ++g) {
      for (uint32_t m = 0; m < groups_[g].size(); ++m)
        members.push_back({g, m});
    }
    return members;
  }

  std::vector<Member> WithMedia(uint32_t rank) const {
    std::vector<Member> found;
    for (const Member& member : Members(rank)) {
      if (has_media_[sample(member)]) found.push_back(member);
    }
    return found;
  }

  std::vector<std::optional<Member>> Others(uint32_t rank) const {
    const std::vector<Member> members = Members(rank);
    if (members.empty()) return {std::nullopt};
    return std::vector<std::optional<Member>>(members.begin(), members.end());
  }

  uint32_t TargetGroup(uint32_t rank,
                       const std::optional<Member>& other) const {
    return other ? other->group : rank * groups_per_rank_;
  }

  double LargerLoad(uint32_t rank, const Member& given,
                    const std::optional<Member>& other) const {
    const double amount =
        costs_[sample(given)] - (other ? costs_[sample(*other)] : 0);
    return std::max(loads_[given.group] - amount,
                    loads_[TargetGroup(rank, other)] + amount);
  }

  void Apply(uint32_t rank, const Swap& swap) {
    const uint32_t given = sample(swap.donated);
    const double amount =
        costs_[given] - (swap.other ? costs_[sample(*swap.other)] : 0);
    loads_[swap.donated.group] -= amount;
    loads_[TargetGroup(rank, swap.other)] += amount;
    std::vector<uint32_t>& from = groups_[swap.donated.group];
    if (swap.other) {
      std::swap(from[swap.donated.index],
                groups_[swap.other->group][swap.other->index]);
      return;
    }
    from.erase(from.begin() + swap.donated.index);
    groups_[TargetGroup(rank, swap.other)].push_back(given);
  }

  const std::vector<double>& costs_;
  const std::vector<bool>& has_media_;
  const uint32_t groups_per_rank_;
  Groups& groups_;
  std::vector<double> loads_;
};

}  // namespace

std::vector<uint32_t> RanksWithout(const std::vector<bool>& has_media,
                                   uint32_t groups_per_rank,
                                   const Groups& groups) {
  const uint32_t ranks = groups.size() / groups_per_rank;
  std::vector<bool> served(ranks, false);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (const uint32_t i : groups[g]) {
      if (has_media[i]) served[g / groups_per_rank] = true;
    }
  }
  std::vector<uint32_t> without;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!served[rank]) without.push_back(rank);
  }
  if (without.size() == ranks) without.clear();  // then none has one
  return without;
}

std::vector<uint32_t> AlignPresence(const std::vector<double>& costs,
                                    const std::vector<bool>& has_media,
                                    uint32_t groups_per_rank, Groups* groups) {
  std::vector<uint32_t> without =
      RanksWithout(has_media, groups_per_rank, *groups);
  if (without.empty()) return without;
  Aligner aligner(costs, has_media, groups_per_rank, groups);
  std::vector<uint32_t> dummies;
  for (const uint32_t rank : without) {
    if (!aligner.Serve(rank)) dummies.push_back(rank);
  }
  return dummies;
}

}  // namespace ballast
