#ifndef BALLAST_SERVER_SCHEDULE_MIXTURE_H_
#define BALLAST_SERVER_SCHEDULE_MIXTURE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

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

  struct Draw {
    uint32_t source;
    uint64_t number;  // draws of this source before this one
  };

  // At least one of `weights` is above 0; sources of weight 0 are not drawn.
  // There are fewer weights than `max_pattern`. Six decimals of each are exact
  // as long as the pattern fits the table; otherwise they are rounded to shares
  // of 1 / max_pattern.
  explicit Mixture(absl::Span<const double> weights,
                   uint64_t max_pattern = kMaxPattern);

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

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_MIXTURE_H_
