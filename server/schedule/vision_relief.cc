#include "server/schedule/vision_relief.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "server/schedule/group_numbering.h"
#include "server/schedule/swap_search.h"

namespace ballast {
namespace {

// Less room than 1/2^10 of the limit is not worth a search.
constexpr int kLeastRoomShift = 10;
// Number of lightest ranks that are always tried as takers of a rank's samples;
// more are tried while none helps. Beside them this many of its server.
constexpr int kFirstTakers = 3;
constexpr uint32_t kMaxNeighbours = 16;
// A move takes at least this part of the load above the limit off a rank.
constexpr int64_t kLeastRelief = 8;
// Most moves that the search looks at, and most takers that it passes over, and
// with many samples, where the rest of planning takes long.
constexpr uint64_t kMaxTried = 6'000'000;
constexpr uint64_t kMaxPassed = 6'000'000;
constexpr uint64_t kMaxPassedOfMany = 4'000'000;
constexpr size_t kManySamples = 1 << 15;

// A sample where it is. A rank's members are in descending order of cost. Of
// equal moves the one of the first keys counts, so that plans do not depend on
// that order.
struct Member {
  int64_t cost = 0;
  int64_t tokens = 0;
  uint32_t home = 0;
  uint32_t sample = 0;
  uint32_t key = 0;

  bool operator<(const Member& other) const {
    return cost != other.cost ? cost > other.cost : key < other.key;
  }
};
using Members = std::vector<Member>;

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

class Search {
 public:
  Search(const std::vector<VisionSample>& samples, const VisionRanks& ranks,
         int64_t limit)
      : ranks_(ranks),
        limit_(limit),
        members_(ranks.count),
        loads_(ranks.count, 0),
        next_key_(samples.size()),
        most_passed_(samples.size() > kManySamples ? kMaxPassedOfMany
                                                   : kMaxPassed) {
    std::vector<uint32_t> counts(ranks.count, 0);
    for (const VisionSample& sample : samples) ++counts[sample.home];
    for (uint32_t r = 0; r < ranks.count; ++r) {
      members_[r].reserve(counts[r] + 2);
    }
    for (uint32_t i = 0; i < samples.size(); ++i) {
      const VisionSample& sample = samples[i];
      members_[sample.home].push_back(
          {sample.cost, sample.tokens, sample.home, i, i});
      loads_[sample.home] += sample.cost;
    }
    int64_t largest = 0;
    for (Members& members : members_) {
      std::sort(members.begin(), members.end());
      if (!members.empty()) largest = std::max(largest, members[0].cost);
    }
    while (largest >> cost_shift_ >= 64) ++cost_shift_;
    masks_.resize(ranks.count, 0);
    for (uint32_t r = 0; r < ranks.count; ++r) SetMask(r);
    ListNeighbours();
  }

  // Returns whether no rank is above the limit.
  bool Run() {
    std::vector<uint32_t> heavy;
    std::vector<std::pair<int64_t, uint32_t>> light;
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      if (loads_[r] > limit_) heavy.push_back(r);
      if (HasRoom(r)) light.emplace_back(loads_[r], r);
    }
    std::stable_sort(heavy.begin(), heavy.end(), [&](uint32_t a, uint32_t b) {
      return loads_[a] > loads_[b];
    });
    std::sort(light.begin(), light.end());
    takers_ = ByLoad(light.begin(), light.end());
    bool all = true;
    for (const uint32_t r : heavy) all = Relieve(r) && all;
    if (all) return true;
    // Nobody has room: swaps between any ranks, whatever they move.
    while (!exhausted() && SwapHeaviest()) {
    }
    return *std::max_element(loads_.begin(), loads_.end()) <= limit_;
  }

  Groups TakeGroups() {
    Groups groups(ranks_.count);
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      std::sort(members_[r].begin(), members_[r].end(),
                [](const Member& a, const Member& b) { return a.key < b.key; });
      groups[r].reserve(members_[r].size());
      for (const Member& member : members_[r]) {
        groups[r].push_back(member.sample);
      }
    }
    return groups;
  }

 private:
  using ByLoad = std::set<std::pair<int64_t, uint32_t>>;  // load, rank

  bool exhausted() const {
    return tried_ > kMaxTried || passed_ > most_passed_;
  }
  bool HasRoom(uint32_t rank) const {
    return limit_ - loads_[rank] > limit_ >> kLeastRoomShift;
  }
  void AddTaker(uint32_t rank) {
    if (HasRoom(rank)) takers_.emplace(loads_[rank], rank);
  }
  void RemoveTaker(uint32_t rank) { takers_.erase({loads_[rank], rank}); }

  // The bits of masks_ between two costs.
  uint64_t MaskBetween(int64_t least, int64_t most) const {
    return (~uint64_t{0} << (least >> cost_shift_)) &
           (~uint64_t{0} >> (63 - (most >> cost_shift_)));
  }
  void SetMask(uint32_t rank) {
    masks_[rank] = 0;
    for (const Member& member : members_[rank]) {
      masks_[rank] |= MaskBetween(member.cost, member.cost);
    }
  }

  // What a taker with `room` may take from `mine`, or have that `mine` takes.
  struct Wanted {
    uint64_t mask = 0;     // costs of samples to take
    int64_t cheapest = 0;  // cost of the cheapest to give
    int64_t room = -1;     // for which both were made
  };
  Wanted WantedWith(int64_t room, const Members& mine, int64_t least) const {
    Wanted wanted = {0, std::numeric_limits<int64_t>::max(), room};
    for (const Member& give : mine) {
      if (give.cost < least) break;
      wanted.cheapest = give.cost;
      wanted.mask |= MaskBetween(std::max<int64_t>(0, give.cost - room),
                                 give.cost - least);
    }
    return wanted;
  }
  bool MayTake(const Wanted& wanted, uint32_t taker) const {
    return (wanted.mask & masks_[taker]) != 0 ||
           wanted.cheapest <= limit_ - loads_[taker];
  }

  // Lists the ranks of each server, unless there is one.
  void ListNeighbours() {
    for (uint32_t r = 0; r < ranks_.server_of_rank.size(); ++r) {
      const uint32_t server = ranks_.server_of_rank[r];
      if (server >= ranks_of_server_.size()) {
        ranks_of_server_.resize(server + 1);
      }
      ranks_of_server_[server].push_back(r);
    }
    if (ranks_of_server_.size() == 1) ranks_of_server_.clear();
  }

  // Weighted tokens that move if `rank` owns the sample.
  int64_t WeightAt(const Member& member, uint32_t rank) const {
    if (member.home == rank) return 0;
    return ShareServer(ranks_.server_of_rank, member.home, rank)
               ? member.tokens
               : kBetweenServers * member.tokens;
  }
  // Weighted tokens that its move adds; `share` is that of a token between the
  // two ranks.
  int64_t Weight(const Member& member, uint32_t from, uint32_t to,
                 int64_t share) const {
    if (member.home == from) return share * member.tokens;
    if (member.home == to) return -share * member.tokens;
    return WeightAt(member, to) - WeightAt(member, from);
  }

  // The least load that a move takes off `rank`, which is above the limit.
  int64_t LeastRelief(uint32_t rank) const {
    return std::max<int64_t>(1, (loads_[rank] - limit_) / kLeastRelief);
  }

  // Gives samples of `rank` away until its load is within the limit. Takers
  // stay within it. Returns whether that was reached.
  bool Relieve(uint32_t rank) {
    while (loads_[rank] > limit_) {
      std::optional<Move> best;
      TryNeighbours(rank, &best);
      int tried = 0;
      const int64_t least = LeastRelief(rank);
      Wanted wanted;
      for (const auto& [load, taker] : takers_) {
        if (exhausted()) return false;
        // Those that follow have less room still.
        if (limit_ - load < least) break;
        if (best && tried >= kFirstTakers) break;
        ++tried;
        if (taker == rank) continue;
        // Room only shrinks: what was wanted with a little more will do.
        if ((wanted.room - (limit_ - load)) >> cost_shift_ != 0) {
          wanted = WantedWith(limit_ - load, members_[rank], least);
        }
        if (MayTake(wanted, taker)) {
          Try(rank, taker, &best);
        } else {
          ++passed_;
        }
      }
      if (!best) return false;
      Apply(rank, *best);
    }
    return true;
  }

  // Tries the ranks of the same server, beginning after this one.
  void TryNeighbours(uint32_t rank, std::optional<Move>* best) {
    if (ranks_of_server_.empty()) return;
    const std::vector<uint32_t>& ranks =
        ranks_of_server_[ranks_.server_of_rank[rank]];
    const size_t at =
        std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
    for (size_t i = 1; i < std::min<size_t>(ranks.size(), kMaxNeighbours);
         ++i) {
      const uint32_t taker = ranks[(at + i) % ranks.size()];
      if (loads_[taker] < limit_) Try(rank, taker, best);
    }
  }

  // Looks at the moves to one taker that take off enough and for which it has
  // room: for each sample to give, those to take lie next to each other.
  void Try(uint32_t rank, uint32_t taker, std::optional<Move>* best) {
    const int64_t excess = loads_[rank] - limit_;
    const int64_t room = limit_ - loads_[taker];
    const int64_t least = LeastRelief(rank);
    const Members& mine = members_[rank];
    if (room < least) return;
    const Members& others = members_[taker];
    std::optional<Move> found;
    std::pair<uint32_t, int64_t> found_keys;
    const auto consider = [&](uint32_t give, std::optional<uint32_t> take,
                              int64_t amount, int64_t weight) {
      const Move move = {taker, give, take, std::min(amount, excess), weight};
      if (found && found->IsBetterThan(move)) return;
      const std::pair<uint32_t, int64_t> keys = {
          mine[give].key, take ? int64_t{others[*take].key} : -1};
      if (found && !move.IsBetterThan(*found) && found_keys < keys) return;
      found = move;
      found_keys = keys;
    };
    const int64_t share =
        ShareServer(ranks_.server_of_rank, rank, taker) ? 1 : kBetweenServers;
    uint32_t first = 0;  // to take
    for (uint32_t give = 0; give < mine.size(); ++give) {
      ++tried_;
      const int64_t cost = mine[give].cost;
      if (cost < least) break;
      const int64_t weight = Weight(mine[give], rank, taker, share);
      if (cost <= room) consider(give, std::nullopt, cost, weight);
      while (first < others.size() && others[first].cost > cost - least) {
        ++first;
      }
      for (uint32_t take = first;
           take < others.size() && others[take].cost >= cost - room; ++take) {
        ++tried_;
        consider(give, take, cost - others[take].cost,
                 weight + Weight(others[take], taker, rank, share));
      }
    }
    if (found && (!*best || found->IsBetterThan(**best))) *best = found;
  }

  // Swaps a sample of the heaviest rank, if it is above the limit, with one of
  // any rank such that the heavier of the two becomes lightest. Returns whether
  // it became lighter. Takers are not kept.
  bool SwapHeaviest() {
    const uint32_t rank =
        std::max_element(loads_.begin(), loads_.end()) - loads_.begin();
    if (loads_[rank] <= limit_) return false;
    const Members& mine = members_[rank];
    std::optional<Move> best;
    int64_t heavier = loads_[rank];
    for (uint32_t taker = 0; taker < ranks_.count; ++taker) {
      const Members& others = members_[taker];
      if (taker == rank || loads_[taker] >= limit_) continue;
      tried_ += mine.size() * others.size();
      for (uint32_t give = 0; give < mine.size(); ++give) {
        for (uint32_t take = 0; take < others.size(); ++take) {
          const int64_t amount = mine[give].cost - others[take].cost;
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
    Members& mine = members_[rank];
    Members& others = members_[move.taker];
    Member given = mine[move.give];
    mine.erase(mine.begin() + move.give);
    int64_t amount = given.cost;
    if (move.take) {
      Member taken = others[*move.take];
      others.erase(others.begin() + *move.take);
      amount -= taken.cost;
      std::swap(given.key, taken.key);
      Insert(taken, &mine);
    } else {
      given.key = next_key_++;
    }
    Insert(given, &others);
    loads_[rank] -= amount;
    loads_[move.taker] += amount;
    SetMask(rank);
    SetMask(move.taker);
    if (loads_[rank] <= limit_) AddTaker(rank);
    AddTaker(move.taker);
  }

  static void Insert(const Member& member, Members* members) {
    members->insert(std::upper_bound(members->begin(), members->end(), member),
                    member);
  }

  const VisionRanks& ranks_;
  const int64_t limit_;
  std::vector<Members> members_;  // of each rank
  std::vector<int64_t> loads_;
  // For each rank, a bit for each 64th of the costs of which it has a sample.
  std::vector<uint64_t> masks_;
  int cost_shift_ = 0;
  uint32_t next_key_;
  uint64_t tried_ = 0;  // moves
  const uint64_t most_passed_;
  uint64_t passed_ = 0;  // takers
  ByLoad takers_;        // ranks with room
  std::vector<std::vector<uint32_t>> ranks_of_server_;
};

}  // namespace

Groups RelieveRanks(const std::vector<VisionSample>& samples,
                    const VisionRanks& ranks, int64_t limit) {
  Search search(samples, ranks, limit);
  if (search.Run()) return search.TakeGroups();
  std::vector<int64_t> costs;
  costs.reserve(samples.size());
  for (const VisionSample& sample : samples) costs.push_back(sample.cost);
  return ImproveBySwaps(costs, search.TakeGroups(), /*keep_counts=*/false,
                        limit);
}

}  // namespace ballast
