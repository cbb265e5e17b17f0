#include "server/schedule/split_ownership.h"

#include <limits>
#include <numeric>
#include <utility>

#include "server/schedule/fixed_point.h"
#include "server/schedule/presence.h"
#include "server/schedule/vision_placement.h"

namespace ballast {

bool IsSplit(const MicroBatchShape& shape) {
  return shape.balance.placement() == v1::Balance::PLACEMENT_SPLIT &&
         shape.balance.delivery() != v1::DELIVERY_OFF;
}

int64_t EmbeddingTokens(const SampleSize& size, const MicroBatchShape& shape) {
  return static_cast<int64_t>(size.patches / shape.patches_a_token);
}

const ServerOfRank& VisionServers(const MicroBatchShape& shape) {
  static const ServerOfRank* const kOneServer = new ServerOfRank;
  for (const ModuleRanks& ranks : shape.modules) {
    if (ranks.module == v1::MODULE_VISION) return ranks.server_of_rank;
  }
  return *kOneServer;
}

void SplitOwners(const std::vector<ScheduledSample>& samples,
                 const MicroBatchShape& shape, Ownership* ownership) {
  const auto ranks = static_cast<uint32_t>(ownership->groups.size());
  ownership->vision_groups.assign(ranks, {});
  // Samples are read in order, as they lie in memory.
  constexpr uint32_t kElsewhere = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> homes(samples.size(), kElsewhere);
  size_t count = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    for (const uint32_t i : ownership->groups[r]) homes[i] = r;
    ownership->vision_groups[r].reserve(ownership->groups[r].size() + 2);
    count += ownership->groups[r].size();
  }
  std::vector<uint32_t> indexes;  // into `samples`: those with images
  std::vector<double> costs;
  std::vector<VisionSample> placed;
  indexes.reserve(count);
  costs.reserve(count);
  placed.reserve(count);
  for (uint32_t i = 0; i < samples.size(); ++i) {
    if (homes[i] == kElsewhere) continue;
    const SampleSize& size = samples[i].size;
    if (size.grids.empty()) {
      ownership->vision_groups[homes[i]].push_back(i);
      continue;
    }
    indexes.push_back(i);
    costs.push_back(SampleCost(size, v1::MODULE_VISION, shape.balance.cost()));
    placed.push_back({0, EmbeddingTokens(size, shape), homes[i]});
  }
  const std::vector<int64_t> fixed =
      FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
  for (size_t k = 0; k < placed.size(); ++k) placed[k].cost = fixed[k];
  VisionRanks vision;
  vision.count = ranks;
  vision.server_of_rank = VisionServers(shape);
  vision.skip_below = shape.balance.skip_below();
  vision.align_images = shape.balance.align_images();
  const std::vector<uint32_t> owners = PlaceVision(placed, vision);
  std::vector<bool> has_image(samples.size(), false);
  for (size_t k = 0; k < placed.size(); ++k) {
    ownership->vision_groups[owners[k]].push_back(indexes[k]);
    has_image[indexes[k]] = true;
  }
  if (!vision.align_images) return;
  ownership->dummy_ranks =
      RanksWithoutImage(has_image, 1, ownership->vision_groups);
}

}  // namespace ballast
