#include "server/schedule/sample_finder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace ballast {

namespace {

// Number of buckets of costs up to the limit, at most.
constexpr int64_t kBuckets = 512;
constexpr int64_t kNoLoad = std::numeric_limits<int64_t>::max();

constexpr auto kComesLater = [](const SampleFinder::Found& a,
                                const SampleFinder::Found& b) { return b < a; };

}  // namespace

SampleFinder::SampleFinder(const std::vector<int64_t>& loads,
                           const std::vector<uint32_t>& owners, int64_t limit,
                           int64_t least_room, int64_t largest)
    : loads_(loads), owners_(owners), limit_(limit), least_room_(least_room) {
  while (limit >> shift_ >= kBuckets) ++shift_;
  buckets_.resize((largest >> shift_) + 1);
  first_loads_.resize(buckets_.size(), kNoLoad);
}

void SampleFinder::Add(uint32_t sample, int64_t cost) {
  const uint32_t rank = owners_[sample];
  const size_t b = cost >> shift_;
  Bucket& bucket = buckets_[b];
  bucket.push_back({loads_[rank], rank, sample, cost});
  std::push_heap(bucket.begin(), bucket.end(), kComesLater);
  first_loads_[b] = bucket.front().load;
}

uint64_t SampleFinder::Find(const Wanted& wanted, std::optional<Found>* best) {
  if (wanted.give < wanted.least) return 0;
  const int64_t first = FirstBucket(wanted);
  const int64_t last = LastBucket(wanted);
  for (int64_t b = first; b <= last; ++b) {
    // The costliest sample of a bucket needs the least room.
    const int64_t room = wanted.give - (((b + 1) << shift_) - 1);
    if (first_loads_[b] > limit_ - room) continue;
    if (*best && first_loads_[b] > (*best)->load) continue;
    const Found* found = First(b);
    if (found != nullptr) Consider(wanted, *found, best);
  }
  return last - first + 1;
}

uint64_t SampleFinder::FindAmongAll(const Wanted& wanted,
                                    std::optional<Found>* best) const {
  if (wanted.give < wanted.least) return 0;
  uint64_t looks = 0;
  for (int64_t b = FirstBucket(wanted); b <= LastBucket(wanted); ++b) {
    looks += buckets_[b].size() + 1;
    for (Found each : buckets_[b]) {
      each.load = loads_[each.rank];
      if (IsThere(each)) Consider(wanted, each, best);
    }
  }
  return looks;
}

void SampleFinder::Consider(const Wanted& wanted, const Found& found,
                            std::optional<Found>* best) const {
  const int64_t amount = wanted.give - found.cost;
  if (amount < wanted.least || amount > limit_ - found.load) return;
  if (!*best || found < **best) *best = found;
}

const SampleFinder::Found* SampleFinder::First(size_t b) {
  Bucket& bucket = buckets_[b];
  while (!bucket.empty()) {
    const bool stays = IsThere(bucket.front());
    const int64_t load = loads_[bucket.front().rank];
    if (stays && bucket.front().load == load) {
      first_loads_[b] = load;
      return &bucket.front();
    }
    std::pop_heap(bucket.begin(), bucket.end(), kComesLater);
    if (stays) {
      bucket.back().load = load;
      std::push_heap(bucket.begin(), bucket.end(), kComesLater);
    } else {
      bucket.pop_back();
    }
  }
  first_loads_[b] = kNoLoad;
  return nullptr;
}

namespace {

// A sample by its group and its index within the group.
struct Member {
  uint32_t group;
  uint32_t index;
};

struct Exchange {
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
    std::optional<Exchange> best;
    double best_load = std::numeric_limits<double>::infinity();
    for (uint32_t donor = 0; donor < ranks(); ++donor) {
      const std::vector<Member> donated = WithMedia(donor);
      if (donor == rank || donated.size() < 2) continue;
      for (const Member& given : donated) {
        for (const std::optional<Member>& other : Others(rank)) {
          const double load = LargerLoad(rank, given, other);
          if (load < best_load) {
            best_load = load;
            best = Exchange{given, other};
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

  void Apply(uint32_t rank, const Exchange& swap) {
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
