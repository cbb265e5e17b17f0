#ifndef BALLAST_SERVER_SCHEDULE_SAMPLE_FINDER_H_
#define BALLAST_SERVER_SCHEDULE_SAMPLE_FINDER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "server/schedule/balance.h"

namespace ballast {

// Finds samples to take: for a sample to give, one that is cheaper by a wanted
// amount, at the lightest rank that has room for the difference. Samples are in
// buckets by cost, 1/512 to 1/256 of the limit wide. In each bucket the sample
// at the lightest rank comes first, so that a search seldom passes over ranks.
//
// Ranks that hold samples only become heavier. Entries whose sample or load has
// changed are corrected when they come to the top and are wanted: until then
// their load is a lower bound.
class SampleFinder {
 public:
  // Reads `loads`, of each rank, and `owners`, of each sample, which must
  // outlive it. Ranks with less room under `limit` than `least_room` are never
  // found. Costs are at most `largest`.
  SampleFinder(const std::vector<int64_t>& loads,
               const std::vector<uint32_t>& owners, int64_t limit,
               int64_t least_room, int64_t largest);

  // Adds a sample at the rank that owns it.
  void Add(uint32_t sample, int64_t cost);

  struct Found {
    int64_t load = 0;
    uint32_t rank = 0;
    uint32_t sample = 0;
    int64_t cost = 0;

    // Whether it comes first: of equal loads the lower rank and sample.
    bool operator<(const Found& other) const {
      if (load != other.load) return load < other.load;
      return rank != other.rank ? rank < other.rank : sample < other.sample;
    }
  };
  // A sample to give, of the cost `give`, such that its giver's load falls by
  // `least` to `most`, where `most` is the room of the lightest rank.
  struct Wanted {
    int64_t give = 0;
    int64_t least = 1;
    int64_t most = 0;
  };
  // Sets `best` to a sample to take for the one to give, if one is found that
  // comes before `best`. Looks at the first of each bucket alone, so it may
  // miss differences of less than a bucket's width. Returns the number of
  // buckets.
  uint64_t Find(const Wanted& wanted, std::optional<Found>* best);
  // The same among all samples of the buckets. Returns their number.
  uint64_t FindAmongAll(const Wanted& wanted, std::optional<Found>* best) const;

 private:
  using Bucket = std::vector<Found>;  // a heap, the first on top

  int64_t FirstBucket(const Wanted& wanted) const {
    return std::max<int64_t>(0, wanted.give - wanted.most) >> shift_;
  }
  int64_t LastBucket(const Wanted& wanted) const {
    return std::min<int64_t>((wanted.give - wanted.least) >> shift_,
                             buckets_.size() - 1);
  }
  // Whether the sample is still at that rank, which has room.
  bool IsThere(const Found& found) const {
    return owners_[found.sample] == found.rank &&
           limit_ - loads_[found.rank] >= least_room_;
  }
  // Sets `best` to the sample if it may be taken and comes before `best`.
  void Consider(const Wanted& wanted, const Found& found,
                std::optional<Found>* best) const;
  // The first of the bucket as it is now, or null.
  const Found* First(size_t bucket);

  const std::vector<int64_t>& loads_;
  const std::vector<uint32_t>& owners_;
  const int64_t limit_;
  const int64_t least_room_;
  int shift_ = 0;
  std::vector<Bucket> buckets_;
  // For each bucket, the load of its first; above the limit if it is empty.
  std::vector<int64_t> first_loads_;
};

// Ensures that every rank of an encoder owns a sample with media for it, or
// that none does. A rank without one would not take part in the collectives
// inside the encoder, and all others would wait for it forever.
//
// Rank r owns groups [r*groups_per_rank, (r+1)*groups_per_rank). While one rank
// has no media and another has at least two samples with media, one of these is
// swapped with a sample of the rank without media: the pair that minimises the
// larger cost of the two groups (ties: lowest indexes). Group sizes do not
// change, except that a rank without samples receives the sample with media and
// gives nothing. Other groups are not changed. Deterministic.
//
// Returns the ranks that still have no media, ascending, which must add a dummy
// because there are fewer samples with media than ranks. Empty if no sample has
// media.
std::vector<uint32_t> AlignPresence(const std::vector<double>& costs,
                                    const std::vector<bool>& has_media,
                                    uint32_t groups_per_rank, Groups* groups);

// Returns the ranks that have no media while others do, ascending; moves
// nothing.
std::vector<uint32_t> RanksWithout(const std::vector<bool>& has_media,
                                   uint32_t groups_per_rank,
                                   const Groups& groups);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SAMPLE_FINDER_H_
