#ifndef BALLAST_SERVER_SCHEDULE_MIXTURE_H_
#define BALLAST_SERVER_SCHEDULE_MIXTURE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace ballast {

// Which source a position draws from, by weight. Over any prefix of positions
// each source is drawn within one of its exact share. Immutable; thread-safe;
// at most 2^20 table entries, whatever the data's size.
//
// The pattern repeats every sum of the (integer) weights. Within it the j-th
// draw of a source of share x is due in [floor((j-1)/x), ceil(j/x)), and the
// earliest deadline goes first: Pfair scheduling on one processor (Baruah et
// al., "Proportionate Progress", 1996), which meets every deadline.
class Mixture {
 public:
  struct Draw {
    uint32_t source;
    uint64_t number;  // how many draws of this source came before
  };

  // `weights` are above 0. Up to six decimals of each are exact while the
  // pattern fits the table; beyond, they are rounded to shares of 2^-20.
  explicit Mixture(absl::Span<const double> weights);

  // O(1).
  Draw At(uint64_t position) const;

  // The position that draws number `number` of `source`: At's inverse. The
  // largest 64-bit number where that does not fit. O(table).
  uint64_t PositionOf(uint32_t source, uint64_t number) const;

  // The weights as the integers that the pattern is made of.
  const std::vector<uint64_t>& weights() const { return weights_; }

 private:
  struct Slot {
    uint32_t source;
    uint32_t number;  // draws of this source before, within the pattern
  };

  std::vector<uint64_t> weights_;
  std::vector<Slot> slots_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_MIXTURE_H_
