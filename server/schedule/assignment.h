#ifndef BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
#define BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_

#include <cstdint>
#include <vector>

namespace ballast {

// What a row gains in one column. Pairs that are not listed gain 0.
struct Benefit {
  uint32_t column;
  int64_t gain;  // above 0
};

// Gives each of n = rows.size() rows one of n columns, each to one row, so that
// the summed gain is at most n * slack below the largest possible: with slack 0
// exact. Deterministic. Each row lists a column once at most, and columns are
// below n. Gains must sum to less than 2^62, slack not be negative.
//
// Exact: shortest augmenting paths over a sparse matrix (Jonker and Volgenant,
// 1987), a few ms at n = 2,000 and growing with about the square. With slack: an
// auction, near linear in the number of benefits, times gain over slack.
std::vector<uint32_t> MaxGainAssignment(
    const std::vector<std::vector<Benefit>>& rows, int64_t slack);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
