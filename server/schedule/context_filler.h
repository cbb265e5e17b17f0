#ifndef BALLAST_SERVER_SCHEDULE_CONTEXT_FILLER_H_
#define BALLAST_SERVER_SCHEDULE_CONTEXT_FILLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// The drafts among which dynamic context parallelism chooses (PackByContext).
// Pure functions; threads do not change what they return.

// A pack, and the consecutive ranks that share it: each trains on its zig-zag
// part of every sample (trainer_shim/thd_layout.h).
struct ContextPack {
  uint32_t first_rank = 0;        // a multiple of `ranks`
  uint32_t ranks = 1;             // a power of two
  std::vector<uint32_t> samples;  // ascending; at least one
};

// Packs that run at the same time, in ascending order of rank. Each rank has
// part of exactly one.
using ContextMicroBatch = std::vector<ContextPack>;

struct ContextLimits {
  uint32_t ranks = 1;          // a multiple of most_ranks
  uint32_t most_ranks = 1;     // of a pack; a power of two
  uint64_t tokens_a_rank = 0;  // a pack holds so many times its ranks
  uint32_t multiple = 1;       // of micro-batches
};

inline constexpr uint32_t kNoSample = ~uint32_t{0};

// Micro-batches of packs. Samples are numbered by cost, the costliest, of these
// the longest, first.
struct ContextDraft {
  // Its samples are a chain: `next` names the one after each.
  struct Pack {
    uint32_t ranks = 1;
    uint32_t first = kNoSample, last = kNoSample;
    uint64_t tokens = 0;
    int64_t cost = 0;

    int64_t load() const { return cost / ranks; }
  };

  struct Sample {
    uint32_t number = 0;
    uint32_t length = 0;
  };

  std::vector<std::vector<Pack>> micro_batches;
  std::vector<uint32_t> free;  // ranks of each micro-batch
  std::vector<Sample> left;    // without a pack
  std::vector<uint32_t> next;
  std::vector<uint32_t> order;  // each sample's place in the input
};

// The drafts of each patience; those that are the same once, and without those
// in which a rank has no part of a pack. `patience`, ascending: a
// micro-batch's costliest sample gets more ranks than it needs while less
// than this share of all ranks' time is work. `costs`: in fixed point
// (FixedPoint). Each sample fits into a pack of limits.most_ranks ranks.
std::vector<ContextDraft> FillByContext(const std::vector<uint32_t>& lengths,
                                        const std::vector<int64_t>& costs,
                                        const ContextLimits& limits,
                                        absl::Span<const double> patience,
                                        size_t threads);

// The packs of a draft, by rank.
std::vector<ContextMicroBatch> TakePacks(const ContextDraft& draft);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_CONTEXT_FILLER_H_
