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
// the summed gain is the largest possible. Exact and deterministic. Each row
// lists a column once at most, and columns are below n.
//
// Shortest augmenting paths over a sparse matrix (Jonker and Volgenant, 1987):
// O(n (m + n) log n) at worst for m benefits, near linear when most rows can
// have their best column. Gains must sum to less than 2^62.
std::vector<uint32_t> MaxGainAssignment(
    const std::vector<std::vector<Benefit>>& rows);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_ASSIGNMENT_H_
