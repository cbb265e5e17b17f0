#ifndef BALLAST_SERVER_SCHEDULE_CONTEXT_FILLER_H_
#define BALLAST_SERVER_SCHEDULE_CONTEXT_FILLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/schedule/context_packs.h"

namespace ballast {

// The drafts among which dynamic context parallelism chooses (PackByContext).
// Pure functions; threads do not change what they return.

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
