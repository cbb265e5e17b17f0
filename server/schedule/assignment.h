#ifndef BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
#define BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

namespace ballast {

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

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
