#include "server/schedule/ownership.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "common/status_macros.h"
#include "server/schedule/balance_joint.h"
#include "server/schedule/presence.h"
#include "server/schedule/split_ownership.h"

namespace ballast {
namespace {

// The window's groups as read: equal ranges of positions.
Groups ReadingGroups(uint32_t samples, const MicroBatchShape& shape) {
  const uint32_t per_group = shape.micro_batch / shape.grid;
  Groups groups(samples / per_group);
  for (uint32_t i = 0; i < samples; ++i) groups[i / per_group].push_back(i);
  return groups;
}

// PayloadBytes of each sample, computed from the row that the schedule will
// hold, but as if all images travelled as pixels: which rank owns a sample must
// not depend on model.decode, so that both modes make the same batches.
std::vector<uint64_t> PayloadBytes(const std::vector<ScheduledSample>& samples,
                                   v1::Module module,
                                   const BlockGeometry& geometry) {
  std::vector<uint64_t> bytes;
  bytes.reserve(samples.size());
  std::vector<uint32_t> heights, widths;  // reused
  for (const ScheduledSample& sample : samples) {
    heights.clear();
    widths.clear();
    for (const ImageGrid& grid : sample.size.grids) {
      heights.push_back(grid.grid_h);
      widths.push_back(grid.grid_w);
    }
    bytes.push_back(PayloadBytes({sample.size.tokens, heights, widths, {}},
                                 module, geometry));
  }
  return bytes;
}

// The shards that one module's ranks read.
ModuleShards MakeShard(const std::vector<ScheduledSample>& samples,
                       const MicroBatchShape& shape, const ModuleRanks& ranks) {
  ModuleShards module;
  module.ranks = ranks;
  module.bytes = PayloadBytes(samples, ranks.module, shape.geometry);
  module.reader.reserve(samples.size());
  for (uint32_t i = 0; i < samples.size(); ++i) {
    module.reader.push_back(ReaderOf(i, ranks, shape));
  }
  return module;
}

// Returns whether the largest load exceeds the mean by at most that fraction of
// the mean.
bool IsBalanced(const std::vector<double>& costs, const Groups& groups,
                double skip_below) {
  const std::vector<double> loads = GroupLoads(costs, groups);
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  return *std::max_element(loads.begin(), loads.end()) <=
         mean * (1 + skip_below);
}

template <typename CostOf>
std::vector<double> Costs(const std::vector<ScheduledSample>& samples,
                          const CostOf& cost_of) {
  std::vector<double> costs;
  costs.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    costs.push_back(cost_of(sample.size));
  }
  return costs;
}

absl::StatusOr<Groups> Balance(const std::vector<ScheduledSample>& samples,
                               const std::vector<double>& joint_costs,
                               uint32_t groups, const MicroBatchShape& shape) {
  const v1::Balance& balance = shape.balance;
  if (IsSplit(shape)) {
    return BalanceQuickly(joint_costs, groups, balance.equal_count());
  }
  if (balance.objective() != v1::Balance::OBJECTIVE_PHASES ||
      shape.modules.size() < 2 ||
      balance.algorithm() == v1::Balance::ALGORITHM_LPT) {
    return BalanceSamples(joint_costs, groups, balance.algorithm(),
                          balance.equal_count());
  }
  const auto costs = [&](v1::Module module) {
    return Costs(samples, [&](const SampleSize& size) {
      return SampleCost(size, module, balance.cost());
    });
  };
  return BalanceJoint(costs(v1::MODULE_VISION), costs(v1::MODULE_LANGUAGE),
                      groups, balance.equal_count());
}

absl::StatusOr<Groups> WindowGroups(const std::vector<ScheduledSample>& samples,
                                    const std::vector<double>& costs,
                                    const MicroBatchShape& shape) {
  const v1::Balance& balance = shape.balance;
  Groups reading = ReadingGroups(samples.size(), shape);
  if (balance.delivery() == v1::DELIVERY_OFF) return reading;
  if ((balance.skip_below() > 0 || IsSplit(shape)) &&
      IsBalanced(costs, reading, balance.skip_below())) {
    return reading;
  }
  BALLAST_ASSIGN_OR_RETURN(Groups groups,
                           Balance(samples, costs, reading.size(), shape));
  if (balance.algorithm() == v1::Balance::ALGORITHM_LPT) return groups;
  // With split placement most images stay with their text, and their pixels
  // outweigh it by far.
  return NumberGroups(std::move(groups), samples.size() / shape.micro_batch,
                      IsSplit(shape)
                          ? std::vector<ModuleShards>{MakeShard(
                                samples, shape, shape.modules.front())}
                          : MakeShards(samples, shape));
}

// Enforces balance.align_images in one micro-batch.
void AlignVisionRanks(const std::vector<double>& costs,
                      const std::vector<bool>& has_image,
                      const MicroBatchShape& shape, Ownership* ownership) {
  for (const ModuleRanks& ranks : shape.modules) {
    if (ranks.module != v1::MODULE_VISION) continue;
    const uint32_t groups_per_rank = shape.grid / ranks.dp;
    ownership->dummy_ranks =
        shape.balance.delivery() == v1::DELIVERY_OFF
            ? RanksWithoutImage(has_image, groups_per_rank, ownership->groups)
            : AlignImages(costs, has_image, groups_per_rank,
                          &ownership->groups);
  }
}

}  // namespace

uint32_t ReaderOf(uint32_t index, const ModuleRanks& ranks,
                  const MicroBatchShape& shape) {
  const uint32_t group =
      index % shape.micro_batch / (shape.micro_batch / shape.grid);
  return group / (shape.grid / ranks.dp);
}

std::vector<ModuleShards> MakeShards(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape) {
  std::vector<ModuleShards> shards;
  for (const ModuleRanks& ranks : shape.modules) {
    shards.push_back(MakeShard(samples, shape, ranks));
  }
  return shards;
}

absl::StatusOr<std::vector<Ownership>> AssignOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape) {
  const std::vector<double> costs = Costs(samples, [&](const SampleSize& size) {
    return IsSplit(shape)
               ? SampleCost(size, v1::MODULE_LANGUAGE, shape.balance.cost())
               : JointCost(size, shape.balance.cost());
  });
  BALLAST_ASSIGN_OR_RETURN(Groups groups, WindowGroups(samples, costs, shape));
  std::vector<bool> has_image;
  has_image.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    has_image.push_back(!sample.size.grids.empty());
  }
  std::vector<Ownership> owners;
  for (auto first = groups.begin(); first != groups.end();
       first += shape.grid) {
    Ownership& ownership = owners.emplace_back();
    ownership.groups.assign(std::make_move_iterator(first),
                            std::make_move_iterator(first + shape.grid));
    if (IsSplit(shape)) {
      SplitOwners(samples, shape, &ownership);
    } else if (shape.balance.align_images()) {
      AlignVisionRanks(costs, has_image, shape, &ownership);
    }
  }
  return owners;
}

}  // namespace ballast
