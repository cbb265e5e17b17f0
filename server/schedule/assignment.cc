#include "server/schedule/assignment.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

namespace ballast {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kBidsPerRow = 8;
constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

// Matches rows to columns at minimal cost, where the cost of a pair is minus
// its gain and a row may stay unmatched at cost 0. Maintains prices such that
// no pair's reduced cost (cost - row price - column price) is below -slack and
// that of every matched pair is between -slack and 0.
class Matcher {
 public:
  Matcher(const std::vector<std::vector<Benefit>>& rows, int64_t slack)
      : rows_(rows),
        slack_(slack),
        row_price_(rows.size(), 0),
        column_price_(rows.size(), 0),
        column_of_(rows.size(), kNone),
        row_of_(rows.size(), kNone),
        distance_(rows.size(), kFar),
        reached_from_(rows.size(), kNone) {}

  std::vector<uint32_t> Match() {
    Bid();
    if (slack_ > 0) return column_of_;
    for (uint32_t row = 0; row < rows_.size(); ++row) {
      if (column_of_[row] == kNone && row_price_[row] < 0) Augment(row);
    }
    return column_of_;
  }

 private:
  // Lets unmatched rows bid for their best column, up to the price at which
  // their second best is equally good, and take it from its holder. With slack
  // each bid is raised by the slack, so bidding terminates and the result is
  // complete (Bertsekas' auction, 1988). Without slack this is the "augmenting
  // row reduction" of Jonker and Volgenant: it matches most rows cheaply and
  // stops after a few bids a row, since ties would never end.
  void Bid() {
    std::vector<uint32_t> bidders(rows_.size());
    std::iota(bidders.rbegin(), bidders.rend(), 0);
    size_t left = kBidsPerRow * rows_.size();
    while (!bidders.empty() && (slack_ > 0 || left-- > 0)) {
      const uint32_t row = bidders.back();
      bidders.pop_back();
      // Staying unmatched costs 0.
      int64_t best = 0, second = 0;
      uint32_t column = kNone;
      for (const Benefit& benefit : rows_[row]) {
        const int64_t cost = -benefit.gain - column_price_[benefit.column];
        if (cost < best) {
          second = best;
          best = cost;
          column = benefit.column;
        } else if (cost < second) {
          second = cost;
        }
      }
      row_price_[row] = second;
      if (column == kNone) continue;
      column_price_[column] -= second - best + slack_;
      const uint32_t loser = row_of_[column];
      if (loser != kNone) {
        column_of_[loser] = kNone;
        bidders.push_back(loser);
      }
      Assign(row, column);
    }
    // Rows that have not bid may have any price that their pairs allow.
    for (const uint32_t row : bidders) {
      for (const Benefit& benefit : rows_[row]) {
        row_price_[row] = std::min(
            row_price_[row], -benefit.gain - column_price_[benefit.column]);
      }
    }
  }

  void Assign(uint32_t row, uint32_t column) {
    column_of_[row] = column;
    row_of_[column] = row;
  }

  // Finds the cheapest chain of changes that gives `start` a column, or that
  // ends with some row unmatched.
  void Augment(uint32_t start) {
    using Reached = std::pair<int64_t, uint32_t>;  // distance, column
    std::priority_queue<Reached, std::vector<Reached>, std::greater<Reached>>
        queue;
    touched_.clear();
    settled_.clear();
    uint32_t row = start;
    int64_t row_distance = 0;
    // The row that is cheapest to leave unmatched, and its distance.
    uint32_t last_row = start;
    int64_t end_distance = -row_price_[start];
    uint32_t free_column = kNone;
    while (true) {
      Relax(row, row_distance, &queue);
      uint32_t column = kNone;
      while (!queue.empty()) {
        const auto [distance, next] = queue.top();
        queue.pop();
        if (distance == distance_[next]) {
          column = next;
          break;
        }
      }
      if (column == kNone || distance_[column] >= end_distance) break;
      if (row_of_[column] == kNone) {
        free_column = column;
        end_distance = distance_[column];
        break;
      }
      settled_.push_back(column);
      row = row_of_[column];
      row_distance = distance_[column];
      if (row_distance - row_price_[row] < end_distance) {
        end_distance = row_distance - row_price_[row];
        last_row = row;
      }
    }
    AdjustPrices(start, end_distance);
    Flip(start, free_column, last_row);
    for (const uint32_t column : touched_) distance_[column] = kFar;
  }

  template <typename Queue>
  void Relax(uint32_t row, int64_t row_distance, Queue* queue) {
    for (const Benefit& benefit : rows_[row]) {
      const int64_t reduced =
          -benefit.gain - row_price_[row] - column_price_[benefit.column];
      const int64_t distance = row_distance + reduced;
      if (distance >= distance_[benefit.column]) continue;
      if (distance_[benefit.column] == kFar) touched_.push_back(benefit.column);
      distance_[benefit.column] = distance;
      reached_from_[benefit.column] = row;
      queue->emplace(distance, benefit.column);
    }
  }

  void AdjustPrices(uint32_t start, int64_t end_distance) {
    row_price_[start] += end_distance;
    for (const uint32_t column : settled_) {
      if (distance_[column] >= end_distance) continue;
      row_price_[row_of_[column]] += end_distance - distance_[column];
      column_price_[column] -= end_distance - distance_[column];
    }
  }

  // Reassigns columns along the chain that ends at `free_column`, or at
  // `last_row`, which gives up its column.
  void Flip(uint32_t start, uint32_t free_column, uint32_t last_row) {
    uint32_t column = free_column;
    if (column == kNone) {
      column = column_of_[last_row];
      column_of_[last_row] = kNone;
      if (last_row == start) return;
    }
    while (true) {
      const uint32_t row = reached_from_[column];
      const uint32_t given = column_of_[row];
      Assign(row, column);
      if (row == start) return;
      column = given;
    }
  }

  const std::vector<std::vector<Benefit>>& rows_;
  const int64_t slack_;
  std::vector<int64_t> row_price_, column_price_;
  std::vector<uint32_t> column_of_, row_of_;
  // State of the current search.
  std::vector<int64_t> distance_;
  std::vector<uint32_t> reached_from_;
  std::vector<uint32_t> touched_, settled_;
};

}  // namespace

std::vector<uint32_t> MaxGainAssignment(
    const std::vector<std::vector<Benefit>>& rows, int64_t slack) {
  std::vector<uint32_t> columns = Matcher(rows, slack).Match();
  // Unmatched rows take the remaining columns in order.
  std::vector<bool> taken(rows.size(), false);
  for (const uint32_t column : columns) {
    if (column != kNone) taken[column] = true;
  }
  uint32_t next = 0;
  for (uint32_t& column : columns) {
    if (column != kNone) continue;
    while (taken[next]) ++next;
    column = next++;
  }
  return columns;
}

}  // namespace ballast
