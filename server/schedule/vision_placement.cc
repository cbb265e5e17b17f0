#include "server/schedule/vision_placement.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "server/schedule/balance.h"
#include "server/schedule/group_numbering.h"
#include "server/schedule/shared_bound.h"
#include "server/schedule/swap_search.h"

namespace ballast {
namespace {

// Loads within 1/2^10 of the lower bound are even enough: 1.001. Where few
// large samples share a rank, so that the bound exceeds the mean, within 1/2^7.
constexpr int kCloseEnoughShift = 10;
constexpr int kFewSamplesShift = 7;
// Number of lightest ranks that are always tried as takers of a rank's samples;
// more are tried while none helps. Beside them this many of its server.
constexpr int kFirstTakers = 3;
constexpr uint32_t kMaxNeighbours = 16;
// A move takes at least this part of the load above the limit off a rank.
constexpr int64_t kLeastRelief = 8;
// Most moves that the search looks at, and with many samples, where the rest of
// planning takes long.
constexpr uint64_t kMaxTried = 4'000'000;
constexpr uint64_t kMaxTriedOfMany = 1'000'000;
constexpr size_t kManySamples = 1 << 15;
// Up to this many ranks the numbering is the best one.
constexpr uint32_t kMaxNumberedRanks = 512;

// `give` moves from a rank to `taker`, and `take` back unless it is absent.
struct Move {
  uint32_t taker = 0;
  uint32_t give = 0;  // index into the giver's members, as `take`
  std::optional<uint32_t> take;
  int64_t relief = 0;  // load above the limit that it takes off the giver
  int64_t weight = 0;  // weighted tokens that it moves in addition

  // Whether it takes off more load a token.
  bool IsBetterThan(const Move& other) const {
    const double mine =
        static_cast<double>(relief) * std::max<int64_t>(1, other.weight);
    const double others =
        static_cast<double>(other.relief) * std::max<int64_t>(1, weight);
    return mine != others ? mine > others : relief > other.relief;
  }
};

class Placement {
 public:
  Placement(const std::vector<VisionSample>& samples, const VisionRanks& ranks)
      : samples_(samples),
        ranks_(ranks),
        groups_(ranks.count),
        loads_(ranks.count, 0),
        most_tried_(samples.size() > kManySamples ? kMaxTriedOfMany
                                                  : kMaxTried) {
    std::vector<int64_t> costs;
    costs.reserve(samples.size());
    int64_t sum = 0, largest = 0;
    for (uint32_t i = 0; i < samples.size(); ++i) {
      groups_[samples[i].home].push_back(i);
      loads_[samples[i].home] += samples[i].cost;
      costs.push_back(samples[i].cost);
      sum += samples[i].cost;
      largest = std::max(largest, samples[i].cost);
    }
    const int64_t mean = (sum + ranks.count - 1) / ranks.count;
    const int64_t bound = std::max(mean, largest);
    const int64_t shared = SharedBound(std::move(costs), ranks.count, bound);
    limit_ = std::max({bound + (bound >> kCloseEnoughShift),
                       shared + (shared >> kFewSamplesShift),
                       static_cast<int64_t>(static_cast<double>(mean) *
                                            (1 + ranks.skip_below))});
  }

  // Takes the load above the limit off every rank.
  void Even() {
    if (*std::max_element(loads_.begin(), loads_.end()) <= limit_) return;
    ListNeighbours();
    std::vector<uint32_t> heavy;
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      if (loads_[r] > limit_) heavy.push_back(r);
    }
    std::stable_sort(heavy.begin(), heavy.end(), [&](uint32_t a, uint32_t b) {
      return loads_[a] > loads_[b];
    });
    std::vector<std::pair<int64_t, uint32_t>> light;
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      if (HasRoom(r)) light.emplace_back(loads_[r], r);
    }
    std::sort(light.begin(), light.end());
    takers_ = ByLoad(light.begin(), light.end());
    bool all = true;
    for (const uint32_t r : heavy) all = Relieve(r) && all;
    if (all) return;
    // Nobody has room: swaps between any ranks, whatever they move.
    while (tried_ < most_tried_ && SwapHeaviest()) {
    }
    if (*std::max_element(loads_.begin(), loads_.end()) <= limit_) return;
    std::vector<int64_t> costs;
    costs.reserve(samples_.size());
    for (const VisionSample& sample : samples_) costs.push_back(sample.cost);
    groups_ = ImproveBySwaps(costs, std::move(groups_), /*keep_counts=*/false,
                             limit_);
  }

  // Numbers the groups so that the fewest tokens move.
  void Number() {
    if (ranks_.count > kMaxNumberedRanks) return;
    ModuleShards homes;
    homes.ranks = {v1::MODULE_VISION, ranks_.count, ranks_.server_of_rank};
    for (const VisionSample& sample : samples_) {
      homes.reader.push_back(sample.home);
      homes.bytes.push_back(sample.tokens);
    }
    groups_ = NumberGroups(std::move(groups_), 1, {homes});
  }

  // Gives every rank without a sample one of a rank that has several, with the
  // fewest tokens, from the same server if it has one to spare. The receiver
  // has no other load, so the largest load does not rise.
  void Align() {
    std::vector<uint32_t> order(samples_.size()), owner(samples_.size());
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      for (const uint32_t i : groups_[r]) owner[i] = r;
    }
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return samples_[a].tokens < samples_[b].tokens;
    });
    const auto spare = [&](uint32_t i) { return groups_[owner[i]].size() > 1; };
    for (const bool same_server : {true, false}) {
      // A sample that cannot be spared never can be later.
      std::vector<std::vector<uint32_t>> lists(servers());
      for (auto i = order.rbegin(); i != order.rend(); ++i) {
        lists[same_server ? ServerOf(owner[*i]) : 0].push_back(*i);
      }
      for (uint32_t r = 0; r < ranks_.count; ++r) {
        if (!groups_[r].empty()) continue;
        std::vector<uint32_t>& list = lists[same_server ? ServerOf(r) : 0];
        while (!list.empty() && !spare(list.back())) list.pop_back();
        if (list.empty()) continue;
        const uint32_t i = list.back();
        list.pop_back();
        std::vector<uint32_t>& from = groups_[owner[i]];
        from.erase(std::find(from.begin(), from.end(), i));
        groups_[r] = {i};
        owner[i] = r;
      }
    }
  }

  std::vector<uint32_t> Owners() const {
    std::vector<uint32_t> owners(samples_.size());
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      for (const uint32_t i : groups_[r]) owners[i] = r;
    }
    return owners;
  }

 private:
  using ByLoad = std::set<std::pair<int64_t, uint32_t>>;  // load, rank

  uint32_t ServerOf(uint32_t rank) const {
    return ranks_.server_of_rank.empty() ? 0 : ranks_.server_of_rank[rank];
  }
  uint32_t servers() const {
    uint32_t last = 0;
    for (const uint32_t server : ranks_.server_of_rank) {
      last = std::max(last, server);
    }
    return last + 1;
  }

  // Less room than 1/1024 is not worth a search.
  bool HasRoom(uint32_t rank) const {
    return limit_ - loads_[rank] > limit_ >> kCloseEnoughShift;
  }
  void AddTaker(uint32_t rank) {
    if (HasRoom(rank)) takers_.emplace(loads_[rank], rank);
  }
  void RemoveTaker(uint32_t rank) { takers_.erase({loads_[rank], rank}); }

  // Lists the ranks of each server, unless there is one.
  void ListNeighbours() {
    if (servers() == 1) return;
    ranks_of_server_.resize(servers());
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      ranks_of_server_[ServerOf(r)].push_back(r);
    }
  }

  // Weighted tokens that move if `rank` owns the sample.
  int64_t WeightAt(uint32_t sample, uint32_t rank) const {
    const VisionSample& of = samples_[sample];
    if (of.home == rank) return 0;
    return ShareServer(ranks_.server_of_rank, of.home, rank)
               ? of.tokens
               : kBetweenServers * of.tokens;
  }
  int64_t Weight(uint32_t sample, uint32_t from, uint32_t to) const {
    return WeightAt(sample, to) - WeightAt(sample, from);
  }

  // Gives samples of `rank` away until its load is within the limit. Takers
  // stay within it. Returns whether that was reached.
  bool Relieve(uint32_t rank) {
    while (loads_[rank] > limit_) {
      std::optional<Move> best;
      TryNeighbours(rank, &best);
      int tried = 0;
      for (const auto& [load, taker] : takers_) {
        if (tried_ > most_tried_) return false;
        if (best && tried >= kFirstTakers) break;
        ++tried;
        if (taker != rank) Try(rank, taker, &best);
      }
      if (!best) return false;
      Apply(rank, *best);
    }
    return true;
  }

  // Tries the ranks of the same server, beginning after this one.
  void TryNeighbours(uint32_t rank, std::optional<Move>* best) {
    if (ranks_of_server_.empty()) return;
    const std::vector<uint32_t>& ranks = ranks_of_server_[ServerOf(rank)];
    const size_t at =
        std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
    for (size_t i = 1; i < std::min<size_t>(ranks.size(), kMaxNeighbours);
         ++i) {
      const uint32_t taker = ranks[(at + i) % ranks.size()];
      if (loads_[taker] < limit_) Try(rank, taker, best);
    }
  }

  void Try(uint32_t rank, uint32_t taker, std::optional<Move>* best) {
    const int64_t excess = loads_[rank] - limit_;
    const int64_t room = limit_ - loads_[taker];
    const int64_t least = std::max<int64_t>(1, excess / kLeastRelief);
    const auto consider = [&](uint32_t give, std::optional<uint32_t> take,
                              int64_t amount, int64_t weight) {
      const Move move = {taker, give, take, std::min(amount, excess), weight};
      if (!*best || move.IsBetterThan(**best)) *best = move;
    };
    const std::vector<uint32_t>& mine = groups_[rank];
    const std::vector<uint32_t>& others = groups_[taker];
    tried_ += mine.size() * (others.size() + 1);
    for (uint32_t give = 0; give < mine.size(); ++give) {
      const int64_t cost = samples_[mine[give]].cost;
      const int64_t weight = Weight(mine[give], rank, taker);
      if (cost >= least && cost <= room) {
        consider(give, std::nullopt, cost, weight);
      }
      for (uint32_t take = 0; take < others.size(); ++take) {
        const int64_t amount = cost - samples_[others[take]].cost;
        if (amount < least || amount > room) continue;
        consider(give, take, amount,
                 weight + Weight(others[take], taker, rank));
      }
    }
  }

  // Swaps a sample of the heaviest rank, if it is above the limit, with one of
  // any rank such that the heavier of the two becomes lightest. Returns whether
  // it became lighter. Takers are not kept.
  bool SwapHeaviest() {
    const uint32_t rank =
        std::max_element(loads_.begin(), loads_.end()) - loads_.begin();
    if (loads_[rank] <= limit_) return false;
    const std::vector<uint32_t>& mine = groups_[rank];
    std::optional<Move> best;
    int64_t heavier = loads_[rank];
    for (uint32_t taker = 0; taker < ranks_.count; ++taker) {
      const std::vector<uint32_t>& others = groups_[taker];
      tried_ += mine.size() * others.size();
      if (taker == rank || loads_[taker] >= limit_) continue;
      for (uint32_t give = 0; give < mine.size(); ++give) {
        for (uint32_t take = 0; take < others.size(); ++take) {
          const int64_t amount =
              samples_[mine[give]].cost - samples_[others[take]].cost;
          const int64_t after =
              std::max(loads_[rank] - amount, loads_[taker] + amount);
          if (after >= heavier) continue;
          heavier = after;
          best = Move{taker, give, take, 0, 0};
        }
      }
    }
    if (best) Apply(rank, *best);
    return best.has_value();
  }

  void Apply(uint32_t rank, const Move& move) {
    RemoveTaker(move.taker);
    std::vector<uint32_t>& mine = groups_[rank];
    std::vector<uint32_t>& others = groups_[move.taker];
    int64_t amount = samples_[mine[move.give]].cost;
    if (move.take) {
      amount -= samples_[others[*move.take]].cost;
      std::swap(mine[move.give], others[*move.take]);
    } else {
      others.push_back(mine[move.give]);
      mine.erase(mine.begin() + move.give);
    }
    loads_[rank] -= amount;
    loads_[move.taker] += amount;
    if (loads_[rank] <= limit_) AddTaker(rank);
    AddTaker(move.taker);
  }

  const std::vector<VisionSample>& samples_;
  const VisionRanks& ranks_;
  Groups groups_;  // samples of each rank
  std::vector<int64_t> loads_;
  int64_t limit_ = 0;
  const uint64_t most_tried_;
  uint64_t tried_ = 0;  // moves
  ByLoad takers_;       // ranks with room
  std::vector<std::vector<uint32_t>> ranks_of_server_;
};

}  // namespace

std::vector<uint32_t> PlaceVision(const std::vector<VisionSample>& samples,
                                  const VisionRanks& ranks) {
  Placement placement(samples, ranks);
  placement.Even();
  if (ranks.align_images) placement.Align();
  placement.Number();
  return placement.Owners();
}

MovedTokens CountMovedTokens(const std::vector<VisionSample>& samples,
                             const std::vector<uint32_t>& owners,
                             const ServerOfRank& server_of_rank) {
  MovedTokens moved;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (owners[i] == samples[i].home) continue;
    (ShareServer(server_of_rank, samples[i].home, owners[i])
         ? moved.within_servers
         : moved.between_servers) += samples[i].tokens;
  }
  return moved;
}

}  // namespace ballast
