#ifndef BALLAST_SERVER_SCHEDULE_ENCODER_PLACEMENT_H_
#define BALLAST_SERVER_SCHEDULE_ENCODER_PLACEMENT_H_

#include <cstdint>
#include <vector>

#include "proto/schedule/module.h"

namespace ballast {

// A lower bound on the largest load of any partition of `costs` among `ranks`,
// where few large samples share a rank; 0 if it is at most `known`, a bound
// already known, such as the mean load.
//
// If m > k * ranks, some ranks hold more than k of the m costliest samples. If
// s ranks do, they hold at least m - k * (ranks - s) of the m together, and the
// fullest has at least the mean of these, even if they are the cheapest of the
// m. The number s is not known, so the least value over s counts; the bound is
// the largest over k up to 7 and m, in steps. Pure; costs are not negative.
int64_t SharedBound(const std::vector<int64_t>& costs, uint32_t ranks,
                    int64_t known);

// A sample with media for an encoder.
struct EncoderSample {
  int64_t cost = 0;    // for the encoder, in fixed point (FixedPoint)
  int64_t tokens = 0;  // placeholder tokens, one embedding each
  // The sample's language owner; with modules on ranks of their own an
  // encoder's rank near it, where the search begins.
  uint32_t home = 0;
};

// The ranks of an encoder.
struct EncoderRanks {
  uint32_t count = 1;
  ServerOfRank server_of_rank;  // empty: one server
  // Loads that exceed the mean by at most this fraction are even enough
  // (balance.skip_below).
  double skip_below = 0;
  // Every rank gets a sample if there are enough (balance.align_images).
  bool align = true;
};

// Chooses an encoder's owner of each sample (balance.placement `split`). The
// embeddings of a sample move if its owner is not its home. The largest load
// has priority: the largest is within 1/1024 of the lower bound (the mean load
// or the largest cost), or within skip_below of the mean, wherever swaps reach
// it, or within 1/128 of the bound that applies if few large samples share a
// rank (SharedBound); the search evaluates a bounded number of moves and may
// end before. With second priority, few embeddings move: ranks above the bound
// give samples away, each time the ones that take off the most load per
// embedding moved. A token that moves between servers counts kBetweenServers
// times. Finally the ranks' sets of samples are numbered so that the fewest
// tokens move; up to 512 ranks no other numbering moves fewer.
//
// Returns one owner for each sample. Pure and the same on every machine. Costs
// are not negative and sum to less than 2^60.
std::vector<uint32_t> PlaceEncoder(const std::vector<EncoderSample>& samples,
                                   const EncoderRanks& ranks);

// Tokens that move, by whether one server reads for both ranks.
struct MovedTokens {
  uint64_t within_servers = 0;
  uint64_t between_servers = 0;
};
// Where the tokens move between which language's ranks, `home` of each sample,
// and the encoder's are. `together`: rank r of both is the same process, so
// that tokens whose owner is their home stay.
MovedTokens CountMovedTokens(const std::vector<EncoderSample>& samples,
                             const std::vector<uint32_t>& owners,
                             const ServerOfRank& servers_of_homes,
                             const ServerOfRank& servers_of_owners,
                             bool together);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_ENCODER_PLACEMENT_H_
