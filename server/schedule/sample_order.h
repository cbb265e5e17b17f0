#ifndef BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_
#define BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/schedule/group_order.h"

namespace ballast {

// Maps each position to the source that it draws from, by weight. Over any
// prefix of positions the number of draws of each source is within one of its
// exact share. Immutable; thread-safe; at most `max_pattern` table entries,
// whatever the size of the data.
//
// Weights become integers; the pattern of draws repeats with their sum as
// period. Within it the j-th draw of a source of share x is due in
// [floor((j-1)/x), ceil(j/x)), and the earliest deadline goes first: Pfair
// scheduling on one processor (Baruah et al., "Proportionate Progress", 1996),
// which meets every deadline.
class Mixture {
 public:
  static constexpr uint64_t kMaxPattern = uint64_t{1} << 20;
  // Of the weights of a change: bounds the tables of all changes together.
  static constexpr uint64_t kMaxPatternOfChange = uint64_t{1} << 16;

  struct Draw {
    uint32_t source;
    uint64_t number;  // draws of this source before this one
  };

  // At least one of `weights` is above 0; sources of weight 0 are not drawn,
  // and have no effect on the draws of the others. There are fewer weights than
  // `max_pattern`. Six decimals of each are exact as long as the pattern fits
  // the table; otherwise they are rounded to shares of 1 / max_pattern.
  explicit Mixture(absl::Span<const double> weights,
                   uint64_t max_pattern = kMaxPattern);

  // Whether six decimals of `weights` fit the table.
  static bool IsExact(absl::Span<const double> weights, uint64_t max_pattern);

  // O(1).
  Draw At(uint64_t position) const;

  // The position of draw `number` of `source`: the inverse of At. Returns the
  // largest 64-bit number if the position does not fit or the source is not
  // drawn. O(table).
  uint64_t GetPosition(uint32_t source, uint64_t number) const;

  // Draws of each source at the positions before `position`. O(table).
  std::vector<uint64_t> DrawsBefore(uint64_t position) const;

  // The integer weights that the pattern is made from.
  const std::vector<uint64_t>& weights() const { return weights_; }

 private:
  // A draw within the pattern.
  struct PatternDraw {
    uint32_t source;
    uint32_t number;  // draws of this source before it in the pattern
  };

  std::vector<uint64_t> weights_;
  std::vector<PatternDraw> pattern_;
};

// The global order of samples: maps a position to its sample in O(log changes)
// time and O(changes) memory. Depends only on the constructor's arguments, not
// on dp sizes, servers or time. Immutable; thread-safe.
class SampleOrder {
 public:
  struct Source {
    std::string name;
    uint64_t size = 0;  // samples; not 0
    double weight = 1;  // 0: not drawn before a change
    // SourceIndex::group_starts(), which outlives the order, and how many
    // groups are read at a time if samples are shuffled (GroupOrder). Empty:
    // samples are shuffled one by one.
    absl::Span<const uint64_t> group_starts = {};
    uint32_t open_groups = 1;
  };
  // New weights from a position on.
  struct Change {
    uint64_t first_position = 0;
    std::vector<double> weights;  // of each source; 0: not drawn
  };
  struct Sample {
    uint32_t source;
    uint64_t ordinal;  // in the source's index
    uint64_t epoch;    // completed passes through the source
  };

  // `shuffle` false: each source is read in the order of its index, in every
  // epoch.
  SampleOrder(std::vector<Source> sources, uint64_t seed, bool shuffle)
      : SampleOrder(std::move(sources), {}, seed, shuffle) {}
  // The same with `changes` in ascending order of position. Positions before a
  // change do not depend on it. From the change on, each source continues after
  // the samples that it has given. So each sample comes once an epoch, whatever
  // the changes.
  SampleOrder(std::vector<Source> sources, const std::vector<Change>& changes,
              uint64_t seed, bool shuffle);

  Sample At(uint64_t position) const;

  // The position of draw `number` of a source, the inverse of At. Returns the
  // largest 64-bit number if the position does not fit or the source is not
  // drawn.
  uint64_t GetPosition(uint32_t source, uint64_t number) const;

  // The first position whose sample occurs for the (epochs + 1)-th time. Before
  // it, each sample of the source that runs out first occurs `epochs` times,
  // and no sample more often. Returns the largest 64-bit number if the position
  // does not fit.
  uint64_t GetEnd(uint32_t epochs) const;

  // The samples that a range of positions draws from one source.
  struct Drawn {
    uint64_t samples = 0;
    double wanted = 0;  // as its weights require
  };
  // Adds to `drawn`, one entry for each source, what the positions from `first`
  // to `end` - 1 draw. O(changes * table).
  void AddDrawn(uint64_t first, uint64_t end, std::vector<Drawn>* drawn) const;

  const std::vector<Source>& sources() const { return sources_; }

  // The sources' weights at a position, divided by their sum.
  std::vector<double> SharesAt(uint64_t position) const;

 private:
  // Consecutive positions with one mixture, up to the next range's first.
  struct Range {
    uint64_t first_position = 0;
    uint32_t mixture = 0;  // in mixtures_
    // Draws of each source before first_position.
    std::vector<uint64_t> drawn;
  };
  const Range& GetRange(uint64_t position) const;
  // The first position after the range.
  uint64_t EndOfRange(const Range& range) const;

  std::vector<Source> sources_;
  std::vector<uint64_t> keys_;  // per source
  // Per source; null if its samples are shuffled one by one.
  std::vector<std::shared_ptr<const GroupOrder>> groups_;
  bool shuffle_;
  std::vector<Mixture> mixtures_;
  std::vector<Range> ranges_;  // ascending; the first begins at position 0
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SAMPLE_ORDER_H_
