#include "server/schedule/vision_placement.h"

#include <algorithm>
#include <utility>

#include "server/schedule/balance.h"
#include "server/schedule/group_numbering.h"
#include "server/schedule/shared_bound.h"
#include "server/schedule/vision_relief.h"

namespace ballast {
namespace {

// Loads within 1/2^10 of the lower bound are even enough: 1.001. Where few
// large samples share a rank, so that the bound exceeds the mean, within 1/2^7.
constexpr int kCloseEnoughShift = 10;
constexpr int kFewSamplesShift = 7;
// Up to this many ranks the numbering is the best one.
constexpr uint32_t kMaxNumberedRanks = 512;

class Placement {
 public:
  Placement(const std::vector<VisionSample>& samples, const VisionRanks& ranks)
      : samples_(samples), ranks_(ranks) {}

  // Begins with every sample at its home, and takes the load above the limit
  // off every rank.
  void Even() {
    std::vector<int64_t> costs, loads(ranks_.count, 0);
    costs.reserve(samples_.size());
    int64_t sum = 0, largest = 0;
    for (const VisionSample& sample : samples_) {
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

  const std::vector<VisionSample>& samples_;
  const VisionRanks& ranks_;
  Groups groups_;  // samples of each rank
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
