#include "server/schedule/group_order.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "server/schedule/assignment.h"

namespace ballast {
namespace {

constexpr int kRounds = 6;
// With fewer bits in each half there are too few round functions to shuffle
// well.
constexpr int kMinHalfBits = 3;

// Mix64 without its last step, which leaves this number of upper bits
// unchanged. Each round waits for the one before, so each step of a round
// counts.
constexpr int kBitsBeforeLastStep = 31;
inline uint64_t MixBeforeLastStep(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  return (value ^ (value >> 27)) * 0x94D049BB133111EBu;
}

}  // namespace

uint64_t Mix64(uint64_t value) {
  value = MixBeforeLastStep(value);
  return value ^ (value >> kBitsBeforeLastStep);
}

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  const int bits = std::bit_width(size - 1);
  half_bits_ = bits < 2 * kMinHalfBits ? kMinHalfBits : (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t i) const {
  if (size_ == 1) return 0;
  do {
    i = Encrypt(i);
  } while (i >= size_);
  return i;
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  return half_bits_ <= kBitsBeforeLastStep ? Encrypt(value, MixBeforeLastStep)
                                           : Encrypt(value, Mix64);
}

template <typename Mix>
uint64_t Permutation::Encrypt(uint64_t value, Mix mix) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    // The shift keeps the mixer's best bits.
    const uint64_t mixed =
        mix(key_ + round * 0xD1B54A32D192ED03u + right) >> (64 - half_bits_);
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

namespace {

// Limit of a group's list of gains, in multiples of its samples, per module.
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
  std::vector<uint32_t> columns_;  // columns with a gain
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

namespace {

// Slots of a cache line of 64 bytes.
constexpr uint64_t kSlotsOfLine = 4;
constexpr uint64_t kPrefetchedSlots = 8 * kSlotsOfLine;

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// The table of an order that a thread used last.
struct LastTable {
  uint64_t order = 0;  // its id; 0: none
  uint64_t epoch = 0;
  std::shared_ptr<const GroupEpoch> table;
};
constexpr uint64_t kLastTables = 8;
thread_local std::array<LastTable, kLastTables> last_tables;

}  // namespace

GroupEpoch::GroupEpoch(absl::Span<const uint64_t> starts, uint64_t size,
                       uint32_t open_groups, uint64_t key)
    : open_groups_(open_groups), key_(key) {
  const uint64_t groups = starts.size();
  slots_.reserve(groups);
  uint64_t before = 0;
  if (groups > 0) {
    const Permutation order(groups, Mix64(key));
    for (uint64_t slot = 0; slot < groups; ++slot) {
      const uint64_t group = order(slot);
      if (slot % open_groups_ == 0) windows_.push_back(before);
      slots_.push_back({before, starts[group]});
      before += (group + 1 < groups ? starts[group + 1] : size) - starts[group];
    }
  }
  windows_.push_back(before);
  const uint64_t windows = windows_.size() - 1;
  if (windows == 0) return;
  shift_ = std::bit_width(std::max<uint64_t>(size / windows, 1)) - 1;
  uint32_t window = 0;
  for (uint64_t at = 0; at < size; at += uint64_t{1} << shift_) {
    while (windows_[window + 1] <= at) ++window;
    stretches_.push_back(window);
  }
  stretches_.push_back(static_cast<uint32_t>(windows - 1));
}

uint64_t GroupEpoch::GetWindow(uint64_t position) const {
  const uint64_t stretch = position >> shift_;
  const auto begin = windows_.begin() + stretches_[stretch] + 1;
  const auto end = windows_.begin() + stretches_[stretch + 1] + 1;
  return std::upper_bound(begin, end, position) - windows_.begin() - 1;
}

uint64_t GroupEpoch::At(uint64_t position) const {
  const uint64_t window = GetWindow(position);
  const uint64_t begin = window * open_groups_;
  const uint64_t end = std::min<uint64_t>(begin + open_groups_, slots_.size());
  // The slots arrive from main memory while the permutation is computed.
  const uint64_t fetched = std::min(end, begin + kPrefetchedSlots);
  for (uint64_t i = begin; i < fetched; i += kSlotsOfLine) {
    __builtin_prefetch(&slots_[i]);
  }
  const uint64_t first = windows_[window];
  // Each window has its own key: windows of equal sizes differ.
  const Permutation within(windows_[window + 1] - first,
                           Mix64(key_ + Mix64(window + 1)));
  const uint64_t place = first + within(position - first);
  // The last slot of the window that begins at or before the place.
  // Branch-free, since no branch predictor could guess it.
  const Slot* slot = &slots_[begin];
  for (uint64_t left = end - begin; left > 1;) {
    const uint64_t half = left / 2;
    slot += half * static_cast<uint64_t>(slot[half].before <= place);
    left -= half;
  }
  return slot->start + place - slot->before;
}

GroupOrder::GroupOrder(absl::Span<const uint64_t> starts, uint64_t size,
                       uint32_t open_groups, uint64_t key)
    : id_(NextId()),
      starts_(starts),
      size_(size),
      open_groups_(open_groups),
      key_(key) {}

uint64_t GroupOrder::At(uint64_t epoch, uint64_t position) const {
  LastTable& last = last_tables[id_ % kLastTables];
  if (last.order != id_ || last.epoch != epoch) {
    last = {id_, epoch, Epoch(epoch)};
  }
  return last.table->At(position);
}

std::shared_ptr<const GroupEpoch> GroupOrder::Epoch(uint64_t epoch) const {
  {
    MutexLock lock(&mutex_);
    for (Kept& kept : kept_) {
      if (kept.order != nullptr && kept.epoch == epoch) return kept.order;
    }
  }
  auto order = std::make_shared<const GroupEpoch>(starts_, size_, open_groups_,
                                                  Mix64(key_ + Mix64(epoch)));
  MutexLock lock(&mutex_);
  kept_[1] = std::exchange(kept_[0], {epoch, order});
  return order;
}

}  // namespace ballast
