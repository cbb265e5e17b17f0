#include "server/schedule/group_numbering.h"

#include <algorithm>
#include <utility>

#include "server/schedule/assignment.h"

namespace ballast {
namespace {

// Bound on a group's list of gains, in multiples of its samples, per module.
constexpr uint32_t kMaxGroupsPerRank = 64;
// Beyond this many groups, the gain of the result is within 1/512 of a group's
// best gain, on average.
constexpr uint32_t kMaxExactGroups = 512;
constexpr int64_t kSlackShare = 512;

// For each rank, the ranks with the same server.
class Neighbours {
 public:
  explicit Neighbours(const ModuleRanks& ranks) : ranks_(ranks) {
    if (ranks.server_of_rank.empty()) return;
    for (uint32_t rank = 0; rank < ranks.dp; ++rank) {
      const uint32_t server = ranks.server_of_rank[rank];
      if (server >= of_server_.size()) of_server_.resize(server + 1);
      of_server_[server].push_back(rank);
    }
  }

  bool one_server() const { return of_server_.empty(); }
  const std::vector<uint32_t>& of(uint32_t rank) const {
    return of_server_[ranks_.server_of_rank[rank]];
  }

 private:
  const ModuleRanks& ranks_;
  std::vector<std::vector<uint32_t>> of_server_;
};

// The gains of one group, by column. Reused from group to group.
class Row {
 public:
  explicit Row(uint32_t columns) : gains_(columns, 0) {}

  void Add(uint32_t column, int64_t gain) {  // above 0
    if (gains_[column] == 0) columns_.push_back(column);
    gains_[column] += gain;
  }

  // Returns the gains in ascending order of column, and empties the row.
  std::vector<Benefit> Take() {
    std::sort(columns_.begin(), columns_.end());
    std::vector<Benefit> benefits;
    benefits.reserve(columns_.size());
    for (const uint32_t column : columns_) {
      benefits.push_back({column, gains_[column]});
      gains_[column] = 0;
    }
    columns_.clear();
    return benefits;
  }

 private:
  std::vector<int64_t> gains_;     // 0: none
  std::vector<uint32_t> columns_;  // those with a gain
};

// Adds to `row` the gain of each column that spares the sample's bytes a move,
// or a move between servers.
void AddGains(uint32_t reader, int64_t bytes, uint32_t groups_per_rank,
              uint32_t grid, uint32_t slots, const Neighbours& neighbours,
              Row* row) {
  const auto add = [&](uint32_t rank, int64_t gain) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const uint32_t first = slot * grid + rank * groups_per_rank;
      for (uint32_t k = 0; k < groups_per_rank; ++k) {
        row->Add(first + k, gain);
      }
    }
  };
  if (bytes == 0) return;
  if (neighbours.one_server()) {
    add(reader, bytes);
    return;
  }
  for (const uint32_t rank : neighbours.of(reader)) {
    add(rank, (rank == reader ? kBetweenServers : kBetweenServers - 1) * bytes);
  }
}

int64_t Slack(const std::vector<std::vector<Benefit>>& gains) {
  const int64_t groups = gains.size();
  if (groups <= kMaxExactGroups) return 0;
  int64_t sum = 0;
  for (const std::vector<Benefit>& row : gains) {
    int64_t best = 0;
    for (const Benefit& benefit : row) best = std::max(best, benefit.gain);
    sum += best;
  }
  return std::max<int64_t>(1, sum / groups / kSlackShare);
}

}  // namespace

Groups NumberGroups(Groups groups, uint32_t slots,
                    const std::vector<ModuleShards>& shards) {
  const uint32_t grid = groups.size() / slots;
  struct Weighed {
    const ModuleShards* shards;
    uint32_t groups_per_rank;
    Neighbours neighbours;
  };
  std::vector<Weighed> weighed;
  for (const ModuleShards& module : shards) {
    const uint32_t dp = module.ranks.dp;
    const uint32_t groups_per_rank = grid / dp;
    // With one rank nothing can move.
    if (dp == 1 || groups_per_rank * slots > kMaxGroupsPerRank) continue;
    weighed.push_back({&module, groups_per_rank, Neighbours(module.ranks)});
  }
  std::vector<std::vector<Benefit>> gains(groups.size());
  Row row(groups.size());
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (const auto& [module, groups_per_rank, neighbours] : weighed) {
      for (const uint32_t i : groups[g]) {
        AddGains(module->reader[i], module->bytes[i], groups_per_rank, grid,
                 slots, neighbours, &row);
      }
    }
    gains[g] = row.Take();
  }
  const std::vector<uint32_t> columns = MaxGainAssignment(gains, Slack(gains));
  Groups placed(groups.size());
  for (uint32_t g = 0; g < groups.size(); ++g) {
    placed[columns[g]] = std::move(groups[g]);
  }
  return placed;
}

}  // namespace ballast
