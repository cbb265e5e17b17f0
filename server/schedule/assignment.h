#ifndef BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
#define BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

namespace ballast {

// A partition of samples into groups: for each group the indexes of its
// samples, in the order in which the group's owner holds them.
using Groups = std::vector<std::vector<uint32_t>>;

// The indexes of `costs`, costliest first; equal costs in their order in
// `costs`. Costs are not negative. Takes linear time, unless there are few.
std::vector<uint32_t> CostliestFirst(const std::vector<int64_t>& costs);

// The gain of giving a row one column. Pairs that are not listed gain 0.
struct Benefit {
  uint32_t column;
  int64_t gain;  // above 0
};

// Assigns to each of n = rows.size() rows one of n columns, each column to one
// row, such that the summed gain is at most n * slack below the largest
// possible; with slack 0 it is the largest. Deterministic. A row lists each
// column at most once; columns are below n, gains sum to less than 2^62, slack
// is not negative.
//
// With slack 0: shortest augmenting paths over a sparse matrix (Jonker and
// Volgenant, 1987), a few ms at n = 2,000, growing about quadratically. With
// slack above 0: an auction, whose time is about linear in the number of
// benefits times gain / slack.
std::vector<uint32_t> MaxGainAssignment(
    const std::vector<std::vector<Benefit>>& rows, int64_t slack);

// Lowers the largest load of `groups` by swaps: repeatedly, the heaviest group
// gives one or two samples to a lighter one and takes one, two or (unless
// `keep_counts`) none in return, choosing the swap that minimises the larger of
// the two loads. Ends when no swap helps, when the largest load is within
// 1/4096 of its lower bound or at most `enough`, or after 64 swaps a group on
// average. Uses only integers, so the result is the same on every machine.
// Members of a group are returned in ascending order. Costs are not negative
// and their sum is below 2^62.
Groups ImproveBySwaps(const std::vector<int64_t>& costs, Groups groups,
                      bool keep_counts, int64_t enough = 0);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
