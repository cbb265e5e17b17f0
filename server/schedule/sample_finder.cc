#include "server/schedule/sample_finder.h"

#include <algorithm>
#include <limits>

namespace ballast {
namespace {

// Number of buckets of costs up to the limit, at most.
constexpr int64_t kBuckets = 512;
constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

constexpr auto kComesLater = [](const SampleFinder::Found& a,
                                const SampleFinder::Found& b) { return b < a; };

}  // namespace

SampleFinder::SampleFinder(const std::vector<int64_t>& loads,
                           const std::vector<uint32_t>& owners, int64_t limit,
                           int64_t least_room, int64_t largest)
    : loads_(loads), owners_(owners), limit_(limit), least_room_(least_room) {
  while (limit >> shift_ >= kBuckets) ++shift_;
  buckets_.resize((largest >> shift_) + 1);
  first_loads_.resize(buckets_.size(), kNone);
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
    // The costliest of a bucket needs the least room.
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
  first_loads_[b] = kNone;
  return nullptr;
}

}  // namespace ballast
