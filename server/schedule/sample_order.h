#ifndef BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/schedule/group_order.h"
#include "server/schedule/mixture.h"

namespace ballast {

// The global order of samples: maps a position to its sample in O(1) time and
// memory. Depends only on the constructor's arguments, not on dp sizes, servers
// or time. Immutable; thread-safe.
class SampleOrder {
 public:
  struct Source {
    std::string name;
    uint64_t size = 0;  // samples; not 0
    double weight = 1;
    // SourceIndex::group_starts(), which outlives the order, and how many
    // groups are read at a time if samples are shuffled (GroupOrder). Empty:
    // samples are shuffled one by one.
    absl::Span<const uint64_t> group_starts = {};
    uint32_t open_groups = 1;
  };
  struct Sample {
    uint32_t source;
    uint64_t ordinal;  // in the source's index
    uint64_t epoch;    // completed passes through the source
  };

  // `shuffle` false: each source is read in the order of its index, in every
  // epoch.
  SampleOrder(std::vector<Source> sources, uint64_t seed, bool shuffle);

  Sample At(uint64_t position) const;

  // The first position whose sample occurs for the (epochs + 1)-th time. Before
  // it, each sample of the source that runs out first occurs `epochs` times,
  // and no sample more often. Returns the largest 64-bit number if the position
  // does not fit.
  uint64_t EndOf(uint32_t epochs) const;

 private:
  std::vector<Source> sources_;
  std::vector<uint64_t> keys_;  // per source
  // Per source; null if its samples are shuffled one by one.
  std::vector<std::shared_ptr<const GroupOrder>> groups_;
  bool shuffle_;
  Mixture mixture_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_
