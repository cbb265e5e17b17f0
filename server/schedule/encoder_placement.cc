#include "server/schedule/encoder_placement.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "server/schedule/assignment.h"
#include "server/schedule/balance.h"
#include "server/schedule/group_order.h"
#include "server/schedule/placement_figures.h"
#include "server/schedule/sample_finder.h"

namespace ballast {

namespace {

// The largest number k of large samples of a rank.
constexpr size_t kMaxShared = 7;

// The least mean load of s ranks, over s up to m - k * ranks, that hold the
// cheapest m - k * (ranks - s) of the m costliest samples. `sums` are the
// running sums of the costliest samples.
int64_t LeastMean(const std::vector<int64_t>& sums, size_t m, size_t k,
                  size_t ranks) {
  const size_t excess = m - k * ranks;
  const auto mean = [&](size_t s) {
    return (sums[m] - sums[m - excess - k * s]) / static_cast<int64_t>(s);
  };
  // The sum is convex in s, so the mean falls, then rises. It rises from the
  // first s on at which the next k samples cost at least the mean.
  size_t first = 1;
  size_t last = excess;
  while (first < last) {
    const size_t s = first + (last - first) / 2;
    const size_t end = m - excess - k * s;
    if (sums[end] - sums[end - k] >= mean(s)) {
      last = s;
    } else {
      first = s + 1;
    }
  }
  return mean(first);
}

}  // namespace

int64_t SharedBound(const std::vector<int64_t>& costs, uint32_t ranks,
                    int64_t known) {
  if (costs.size() <= ranks) return 0;
  std::vector<int64_t> sums = {0};  // running sums of the costliest
  sums.reserve(costs.size() + 1);
  for (const uint32_t i : CostliestFirst(costs)) {
    sums.push_back(sums.back() + costs[i]);
  }
  int64_t bound = 0;
  const size_t step = std::max(1u, ranks / 64);
  for (size_t k = 1; k <= kMaxShared; ++k) {
    const size_t last = std::min<size_t>(costs.size(), (k + 1) * ranks);
    for (size_t m = k * ranks + 1; m <= last; m += step) {
      bound = std::max(bound, LeastMean(sums, m, k, ranks));
    }
  }
  return bound > known ? bound : 0;
}

namespace {

// A rank with less room than 1/2^10 of the limit is not worth a search.
constexpr int kMinRoomShift = 10;
// Number of lightest ranks that are always tried as takers of a rank's samples,
// and number of ranks of the same server that are tried in addition.
constexpr size_t kFirstTakers = 3;
constexpr uint32_t kMaxNeighbours = 16;
// Other light ranks are tried until the tries without success exceed the
// successes by this number.
constexpr int kMaxUnhelpful = 64;
// A move takes at least this fraction (1/8) of a rank's excess over the limit
// off the rank.
constexpr int64_t kMinRelief = 8;
// Limit of the search: moves evaluated, plus places searched for a taker.
constexpr uint64_t kMaxLooks = 6'000'000;

// A sample and the rank that owns it. A rank's members are in descending order
// of cost; among equal moves the one with the first members wins.
struct Member {
  int64_t cost = 0;
  int64_t tokens = 0;
  uint32_t home = 0;
  uint32_t sample = 0;

  bool operator<(const Member& other) const {
    return cost != other.cost ? cost > other.cost : sample < other.sample;
  }
};
using Members = std::vector<Member>;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// Moves `give` from a rank to `taker`, and `take` back unless it is kNone.
struct Move {
  uint32_t taker = 0;
  uint32_t give = 0;  // index into the giver's members, as `take`
  uint32_t take = kNone;
  // Load above the limit that the move takes off the giver; 0: no move.
  int64_t relief = 0;
  int64_t weight = 0;  // weighted tokens that it moves in addition

  bool found() const { return relief > 0; }
};

class Search {
 public:
  Search(const std::vector<EncoderSample>& samples, const EncoderRanks& ranks,
         int64_t limit)
      : ranks_(ranks),
        limit_(limit),
        members_(ranks.count),
        loads_(ranks.count, 0),
        owners_(samples.size()),
        light_(ranks.count) {
    std::vector<uint32_t> counts(ranks.count, 0);
    for (const EncoderSample& sample : samples) ++counts[sample.home];
    for (uint32_t r = 0; r < ranks.count; ++r) {
      members_[r].reserve(counts[r] + 2);
    }
    for (uint32_t i = 0; i < samples.size(); ++i) {
      const EncoderSample& sample = samples[i];
      members_[sample.home].push_back(
          {sample.cost, sample.tokens, sample.home, i});
      loads_[sample.home] += sample.cost;
      owners_[i] = sample.home;
    }
    for (Members& members : members_) std::sort(members.begin(), members.end());
    ListNeighbours();
  }

  // Returns whether no rank is above the limit.
  bool Run() {
    std::vector<uint32_t> heavy;
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      if (loads_[r] > limit_) heavy.push_back(r);
      SetTaker(r);
    }
    std::stable_sort(heavy.begin(), heavy.end(), [&](uint32_t a, uint32_t b) {
      return loads_[a] > loads_[b];
    });
    bool all = true;
    for (const uint32_t r : heavy) all = Relieve(r) && all;
    if (all) return true;
    // No rank has room: swaps between any ranks, whatever embeddings move.
    while (!exhausted() && SwapHeaviest()) {
    }
    return *std::max_element(loads_.begin(), loads_.end()) <= limit_;
  }

  Groups MakeGroups() const {
    Groups groups(ranks_.count);
    for (uint32_t r = 0; r < ranks_.count; ++r) {
      groups[r].reserve(members_[r].size());
    }
    for (uint32_t i = 0; i < owners_.size(); ++i) {
      groups[owners_[i]].push_back(i);
    }
    return groups;
  }

 private:
  bool exhausted() const { return looks_ > kMaxLooks; }
  int64_t least_room() const { return (limit_ >> kMinRoomShift) + 1; }
  bool HasRoom(uint32_t rank) const {
    return limit_ - loads_[rank] >= least_room();
  }
  // Counts the rank among the takers if it has room.
  void SetTaker(uint32_t rank) {
    if (HasRoom(rank)) {
      light_.Set(rank, loads_[rank]);
    } else {
      light_.Remove(rank);
    }
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
  // Weighted tokens that the move adds; `share` is the weight of a token
  // between the two ranks.
  int64_t Weight(const Member& member, uint32_t from, uint32_t to,
                 int64_t share) const {
    if (member.home == from) return share * member.tokens;
    if (member.home == to) return -share * member.tokens;
    return WeightAt(member, to) - WeightAt(member, from);
  }

  // The least load that a useful move takes off `rank`, which is above the
  // limit.
  int64_t LeastRelief(uint32_t rank) const {
    return std::max<int64_t>(1, (loads_[rank] - limit_) / kMinRelief);
  }

  // Gives samples of `rank` away until its load is within the limit. Takers
  // stay within the limit. Returns whether `rank` reached it.
  bool Relieve(uint32_t rank) {
    while (loads_[rank] > limit_) {
      if (exhausted()) return false;
      Move best;
      TryNeighbours(rank, &best);
      TryLightest(rank, &best);
      if (!best.found()) return false;
      Apply(rank, best);
      if (loads_[rank] <= limit_) AddTaker(rank);
    }
    return true;
  }

  // Tries the ranks of the same server, beginning after this one.
  void TryNeighbours(uint32_t rank, Move* best) {
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

  // Tries the ranks with the most room: the first few always, others while none
  // helps, unless they have helped too seldom. Then stops at the first that
  // helps.
  void TryLightest(uint32_t rank, Move* best) {
    LightRanks::List takers = light_.Lightest(kFirstTakers);
    for (size_t i = 0; i < takers.count; ++i) Try(rank, takers.ranks[i], best);
    if (best->found() || takers.count < kFirstTakers) return;
    if (unhelpful_ <= kMaxUnhelpful) {
      takers = light_.Lightest(LightRanks::kMaxListed);
      for (size_t i = kFirstTakers; i < takers.count && !best->found(); ++i) {
        Try(rank, takers.ranks[i], best);
      }
      unhelpful_ += best->found() ? -1 : 1;
    }
    if (!best->found()) {
      TryFound(rank, limit_ - loads_[takers.ranks[0]], best);
    }
  }

  // Tries the lightest rank with which a swap takes enough load off `rank`. No
  // rank has more room than `most_room`.
  void TryFound(uint32_t rank, int64_t most_room, Move* best) {
    if (!finder_) ListSamples();
    const int64_t least = LeastRelief(rank);
    std::optional<SampleFinder::Found> found;
    for (const Member& give : members_[rank]) {
      looks_ += finder_->Find({give.cost, least, most_room}, &found);
    }
    for (const Member& give : members_[rank]) {
      if (found || exhausted()) break;
      looks_ += finder_->FindAmongAll({give.cost, least, most_room}, &found);
    }
    if (found) Try(rank, found->rank, best);
  }

  // Lists the samples of all takers.
  void ListSamples() {
    int64_t largest = 0;
    for (const Members& members : members_) {
      if (!members.empty()) largest = std::max(largest, members[0].cost);
    }
    finder_.emplace(loads_, owners_, limit_, least_room(), largest);
    for (uint32_t r = 0; r < ranks_.count; ++r) AddSamples(r);
  }
  void AddSamples(uint32_t rank) {
    if (!HasRoom(rank)) return;
    for (const Member& member : members_[rank]) {
      finder_->Add(member.sample, member.cost);
    }
  }

  // Lets a relieved rank take samples.
  void AddTaker(uint32_t rank) {
    SetTaker(rank);
    if (finder_) AddSamples(rank);
  }

  // Evaluates the moves to one taker that take off enough load and for which it
  // has room, and sets `best` to the one that takes off the most load per
  // token. For each sample to give, the samples to take are adjacent.
  void Try(uint32_t rank, uint32_t taker, Move* best) {
    const int64_t excess = loads_[rank] - limit_;
    const int64_t room = limit_ - loads_[taker];
    const int64_t least = LeastRelief(rank);
    if (room < least) return;
    const Members& mine = members_[rank];
    const Members& others = members_[taker];
    // Scaled to numbers that multiply without overflow.
    double best_relief = best->relief;
    double best_weight = std::max<int64_t>(1, best->weight);
    const auto consider = [&](uint32_t give, uint32_t take, int64_t amount,
                              int64_t weight) {
      const double relief = std::min(amount, excess);
      const double least_weight = std::max<int64_t>(1, weight);
      const double now = relief * best_weight;
      const double before = best_relief * least_weight;
      if (now < before || (now == before && relief <= best_relief)) return;
      best_relief = relief;
      best_weight = least_weight;
      *best = {taker, give, take, std::min(amount, excess), weight};
    };
    const int64_t share =
        ShareServer(ranks_.server_of_rank, rank, taker) ? 1 : kBetweenServers;
    const Member* first = others.data();  // to take
    const Member* const end = first + others.size();
    uint64_t looks = 0;
    for (const Member& give : mine) {
      ++looks;
      if (give.cost < least) break;
      const uint32_t index = &give - mine.data();
      const int64_t weight = Weight(give, rank, taker, share);
      if (give.cost <= room) consider(index, kNone, give.cost, weight);
      while (first < end && first->cost > give.cost - least) ++first;
      for (const Member* take = first;
           take < end && take->cost >= give.cost - room; ++take) {
        ++looks;
        consider(index, take - others.data(), give.cost - take->cost,
                 weight + Weight(*take, taker, rank, share));
      }
    }
    looks_ += looks;
  }

  // Swaps a sample of the heaviest rank, if it is above the limit, with one of
  // any rank such that the heavier of the two becomes lightest. Returns whether
  // it became lighter. Takers are not kept.
  bool SwapHeaviest() {
    const uint32_t rank =
        std::max_element(loads_.begin(), loads_.end()) - loads_.begin();
    if (loads_[rank] <= limit_) return false;
    const Members& mine = members_[rank];
    Move best;
    int64_t heavier = loads_[rank];
    for (uint32_t taker = 0; taker < ranks_.count; ++taker) {
      const Members& others = members_[taker];
      if (taker == rank || loads_[taker] >= limit_) continue;
      looks_ += mine.size() * others.size();
      for (uint32_t give = 0; give < mine.size(); ++give) {
        for (uint32_t take = 0; take < others.size(); ++take) {
          const int64_t amount = mine[give].cost - others[take].cost;
          const int64_t after =
              std::max(loads_[rank] - amount, loads_[taker] + amount);
          if (after >= heavier) continue;
          heavier = after;
          best = {taker, give, take, amount, 0};
        }
      }
    }
    if (best.found()) Apply(rank, best);
    return best.found();
  }

  void Apply(uint32_t rank, const Move& move) {
    Members& mine = members_[rank];
    Members& others = members_[move.taker];
    const Member given = mine[move.give];
    mine.erase(mine.begin() + move.give);
    int64_t amount = given.cost;
    if (move.take != kNone) {
      const Member taken = others[move.take];
      others.erase(others.begin() + move.take);
      amount -= taken.cost;
      Insert(taken, &mine);
      owners_[taken.sample] = rank;
    }
    Insert(given, &others);
    owners_[given.sample] = move.taker;
    loads_[rank] -= amount;
    loads_[move.taker] += amount;
    SetTaker(move.taker);
    if (finder_ && HasRoom(move.taker)) finder_->Add(given.sample, given.cost);
  }

  static void Insert(const Member& member, Members* members) {
    members->insert(std::upper_bound(members->begin(), members->end(), member),
                    member);
  }

  const EncoderRanks& ranks_;
  const int64_t limit_;
  std::vector<Members> members_;  // of each rank
  std::vector<int64_t> loads_;
  std::vector<uint32_t> owners_;        // of each sample
  LightRanks light_;                    // ranks with room
  std::optional<SampleFinder> finder_;  // finds the takers' samples; made at
                                        // first use
  int unhelpful_ = 0;
  uint64_t looks_ = 0;
  std::vector<std::vector<uint32_t>> ranks_of_server_;
};

// Takes the load above `limit` off every rank, as far as the search finds
// moves, beginning with every sample at its home. Returns each rank's samples.
Groups RelieveRanks(const std::vector<EncoderSample>& samples,
                    const EncoderRanks& ranks, int64_t limit) {
  Search search(samples, ranks, limit);
  if (search.Run()) return search.MakeGroups();
  std::vector<int64_t> costs;
  costs.reserve(samples.size());
  for (const EncoderSample& sample : samples) costs.push_back(sample.cost);
  return ImproveBySwaps(costs, search.MakeGroups(), /*keep_counts=*/false,
                        limit);
}

// A largest load within 1/2^10 of the lower bound (1.001 of it) is even enough.
// Where few large samples share a rank, so that the bound exceeds the mean,
// within 1/2^7 of it.
constexpr int kCloseEnoughShift = 10;
constexpr int kFewSamplesShift = 7;
// Up to this many ranks the numbering is optimal.
constexpr uint32_t kMaxNumberedRanks = 512;

class Placement {
 public:
  Placement(const std::vector<EncoderSample>& samples,
            const EncoderRanks& ranks)
      : samples_(samples), ranks_(ranks) {}

  // Begins with every sample at its home, and takes the load above the limit
  // off every rank.
  void Even() {
    std::vector<int64_t> costs, loads(ranks_.count, 0);
    costs.reserve(samples_.size());
    int64_t sum = 0, largest = 0;
    for (const EncoderSample& sample : samples_) {
      loads[sample.home] += sample.cost;
      costs.push_back(sample.cost);
      sum += sample.cost;
      largest = std::max(largest, sample.cost);
    }
    const int64_t mean = (sum + ranks_.count - 1) / ranks_.count;
    const int64_t bound = std::max(mean, largest);
    const int64_t shared = SharedBound(costs, ranks_.count, bound);
    const int64_t limit =
        std::max({bound + (bound >> kCloseEnoughShift),
                  shared + (shared >> kFewSamplesShift),
                  static_cast<int64_t>(static_cast<double>(mean) *
                                       (1 + ranks_.skip_below))});
    if (*std::max_element(loads.begin(), loads.end()) > limit) {
      groups_ = RelieveRanks(samples_, ranks_, limit);
      return;
    }
    groups_.resize(ranks_.count);
    for (uint32_t i = 0; i < samples_.size(); ++i) {
      groups_[samples_[i].home].push_back(i);
    }
  }

  // Numbers the groups so that the fewest tokens move.
  void Number() {
    if (ranks_.count > kMaxNumberedRanks) return;
    ModuleShards homes;
    homes.ranks = {v1::MODULE_UNSPECIFIED, ranks_.count, ranks_.server_of_rank};
    for (const EncoderSample& sample : samples_) {
      homes.reader.push_back(sample.home);
      homes.bytes.push_back(sample.tokens);
    }
    groups_ = NumberGroups(std::move(groups_), 1, {homes});
  }

  // Gives every rank without a sample one of a rank that has several, with the
  // fewest tokens, from the same server if it has one to spare. The receiver
  // has no other load, so the largest load does not rise.
  void Align() {
    if (std::none_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group.empty(); })) {
      return;
    }
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
      // A sample that cannot be spared now cannot be spared later.
      std::vector<std::vector<uint32_t>> lists(servers());
      for (auto i = order.rbegin(); i != order.rend(); ++i) {
        lists[same_server ? GetServer(owner[*i]) : 0].push_back(*i);
      }
      for (uint32_t r = 0; r < ranks_.count; ++r) {
        if (!groups_[r].empty()) continue;
        std::vector<uint32_t>& list = lists[same_server ? GetServer(r) : 0];
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
  uint32_t GetServer(uint32_t rank) const {
    return ranks_.server_of_rank.empty() ? 0 : ranks_.server_of_rank[rank];
  }
  uint32_t servers() const {
    uint32_t last = 0;
    for (const uint32_t server : ranks_.server_of_rank) {
      last = std::max(last, server);
    }
    return last + 1;
  }

  const std::vector<EncoderSample>& samples_;
  const EncoderRanks& ranks_;
  Groups groups_;  // samples of each rank
};

}  // namespace

std::vector<uint32_t> PlaceEncoder(const std::vector<EncoderSample>& samples,
                                   const EncoderRanks& ranks) {
  Placement placement(samples, ranks);
  placement.Even();
  if (ranks.align) placement.Align();
  placement.Number();
  return placement.Owners();
}

MovedTokens CountMovedTokens(const std::vector<EncoderSample>& samples,
                             const std::vector<uint32_t>& owners,
                             const ServerOfRank& servers_of_homes,
                             const ServerOfRank& servers_of_owners,
                             bool together) {
  MovedTokens moved;
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint32_t home = samples[i].home;
    if (together && owners[i] == home) continue;
    const bool within = servers_of_homes.empty() ||
                        servers_of_homes[home] == servers_of_owners[owners[i]];
    (within ? moved.within_servers : moved.between_servers) +=
        samples[i].tokens;
  }
  return moved;
}

}  // namespace ballast
