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
  Member image;
  std::optional<Member> other;  // absent if the rank owns no sample
};

class Aligner {
 public:
  Aligner(const std::vector<double>& costs, const std::vector<bool>& has_image,
          uint32_t groups_per_rank, Groups* groups)
      : costs_(costs),
        has_image_(has_image),
        groups_per_rank_(groups_per_rank),
        groups_(*groups),
        loads_(GroupLoads(costs, *groups)) {}

  // Gives `rank` a sample with an image; false when no other can spare one.
  bool Serve(uint32_t rank) {
    std::optional<Swap> best;
    double best_load = std::numeric_limits<double>::infinity();
    for (uint32_t donor = 0; donor < ranks(); ++donor) {
      const std::vector<Member> images = Images(donor);
      if (donor == rank || images.size() < 2) continue;
      for (const Member& image : images) {
        for (const std::optional<Member>& other : Others(rank)) {
          const double load = LargerLoad(rank, image, other);
          if (load < best_load) {
            best_load = load;
            best = Swap{image, other};
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

  std::vector<Member> Images(uint32_t rank) const {
    std::vector<Member> images;
    for (const Member& member : Members(rank)) {
      if (has_image_[sample(member)]) images.push_back(member);
    }
    return images;
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

  double LargerLoad(uint32_t rank, const Member& image,
                    const std::optional<Member>& other) const {
    const double amount =
        costs_[sample(image)] - (other ? costs_[sample(*other)] : 0);
    return std::max(loads_[image.group] - amount,
                    loads_[TargetGroup(rank, other)] + amount);
  }

  void Apply(uint32_t rank, const Swap& swap) {
    const uint32_t given = sample(swap.image);
    const double amount =
        costs_[given] - (swap.other ? costs_[sample(*swap.other)] : 0);
    loads_[swap.image.group] -= amount;
    loads_[TargetGroup(rank, swap.other)] += amount;
    std::vector<uint32_t>& from = groups_[swap.image.group];
    if (swap.other) {
      std::swap(from[swap.image.index],
                groups_[swap.other->group][swap.other->index]);
      return;
    }
    from.erase(from.begin() + swap.image.index);
    groups_[TargetGroup(rank, swap.other)].push_back(given);
  }

  const std::vector<double>& costs_;
  const std::vector<bool>& has_image_;
  const uint32_t groups_per_rank_;
  Groups& groups_;
  std::vector<double> loads_;
};

}  // namespace

std::vector<uint32_t> RanksWithoutImage(const std::vector<bool>& has_image,
                                        uint32_t groups_per_rank,
                                        const Groups& groups) {
  const uint32_t ranks = groups.size() / groups_per_rank;
  std::vector<bool> served(ranks, false);
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (const uint32_t i : groups[g]) {
      if (has_image[i]) served[g / groups_per_rank] = true;
    }
  }
  std::vector<uint32_t> without;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!served[rank]) without.push_back(rank);
  }
  if (without.size() == ranks) without.clear();  // then none has one
  return without;
}

std::vector<uint32_t> AlignImages(const std::vector<double>& costs,
                                  const std::vector<bool>& has_image,
                                  uint32_t groups_per_rank, Groups* groups) {
  std::vector<uint32_t> without =
      RanksWithoutImage(has_image, groups_per_rank, *groups);
  if (without.empty()) return without;
  Aligner aligner(costs, has_image, groups_per_rank, groups);
  std::vector<uint32_t> dummies;
  for (const uint32_t rank : without) {
    if (!aligner.Serve(rank)) dummies.push_back(rank);
  }
  return dummies;
}

}  // namespace ballast
