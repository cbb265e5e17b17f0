#include "server/schedule/micro_batch_schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/status_macros.h"
#include "proto/block_layout.h"
#include "server/schedule/balance.h"
#include "server/schedule/presence.h"

namespace ballast {
namespace {

// The grid's groups as they are read: equal runs of positions.
Groups ReadingGroups(uint32_t samples, uint32_t grid) {
  Groups groups(grid);
  const uint32_t per_group = samples / grid;
  for (uint32_t i = 0; i < samples; ++i) groups[i / per_group].push_back(i);
  return groups;
}

std::vector<uint64_t> PayloadBytes(const std::vector<ScheduledSample>& samples,
                                   v1::Module module, uint32_t position_axes) {
  std::vector<uint64_t> bytes;
  bytes.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    if (module == v1::MODULE_LANGUAGE) {
      bytes.push_back(
          LayOutLanguage(sample.size.tokens, position_axes).bytes);
      continue;
    }
    uint64_t pixels = 0;
    for (const ImageGrid& grid : sample.size.grids) {
      pixels += uint64_t{3} * grid.height * grid.width;
    }
    bytes.push_back(pixels);
  }
  return bytes;
}

// Whether the largest group is within a share `skip_below` of the mean.
bool IsBalanced(const std::vector<double>& costs, const Groups& groups,
                double skip_below) {
  const std::vector<double> loads = GroupLoads(costs, groups);
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  return *std::max_element(loads.begin(), loads.end()) <=
         mean * (1 + skip_below);
}

std::vector<double> JointCosts(const std::vector<ScheduledSample>& samples,
                               const v1::Balance& balance) {
  std::vector<double> costs;
  costs.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    costs.push_back(JointCost(sample.size, balance.cost()));
  }
  return costs;
}

absl::StatusOr<Groups> OwningGroups(const std::vector<ScheduledSample>& samples,
                                    const std::vector<double>& costs,
                                    const MicroBatchShape& shape) {
  const v1::Balance& balance = shape.balance;
  Groups reading = ReadingGroups(samples.size(), shape.grid);
  if (balance.delivery() == v1::DELIVERY_OFF) return reading;
  if (balance.skip_below() > 0 &&
      IsBalanced(costs, reading, balance.skip_below())) {
    return reading;
  }
  BALLAST_ASSIGN_OR_RETURN(
      Groups groups, BalanceSamples(costs, shape.grid, balance.algorithm(),
                                    balance.equal_count()));
  if (balance.algorithm() == v1::Balance::ALGORITHM_LPT) return groups;
  std::vector<std::vector<uint64_t>> bytes;
  for (const ModuleRanks& ranks : shape.modules) {
    bytes.push_back(PayloadBytes(samples, ranks.module, shape.position_axes));
  }
  return PlaceGroups(std::move(groups), shape.modules, bytes);
}

// Sees to balance.align_images; returns the vision ranks that need a dummy.
std::vector<uint32_t> AlignVisionRanks(
    const std::vector<ScheduledSample>& samples,
    const std::vector<double>& costs, const MicroBatchShape& shape,
    Groups* groups) {
  uint32_t vision_dp = 0;
  for (const ModuleRanks& ranks : shape.modules) {
    if (ranks.module == v1::MODULE_VISION) vision_dp = ranks.dp;
  }
  if (!shape.balance.align_images() || vision_dp == 0) return {};
  std::vector<bool> has_image;
  has_image.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    has_image.push_back(!sample.size.grids.empty());
  }
  const uint32_t groups_per_rank = shape.grid / vision_dp;
  if (shape.balance.delivery() == v1::DELIVERY_OFF) {
    return RanksWithoutImage(has_image, groups_per_rank, *groups);
  }
  return AlignImages(costs, has_image, groups_per_rank, groups);
}

void AddSample(const ScheduledSample& sample, v1::MicroBatchSchedule* out) {
  out->add_source(sample.sample.source);
  out->add_ordinal(sample.sample.ordinal);
  out->add_images(sample.size.grids.size());
  for (const ImageGrid& grid : sample.size.grids) {
    out->add_grid_h(grid.grid_h);
    out->add_grid_w(grid.grid_w);
  }
  const uint64_t tokens = sample.size.tokens;
  out->add_tokens(sample.size.tokens);
  out->add_label_tokens(sample.size.label_tokens);
  v1::Totals& totals = *out->mutable_totals();
  totals.set_tokens(totals.tokens() + tokens);
  totals.set_tokens_squared(totals.tokens_squared() + tokens * tokens);
  totals.set_label_tokens(totals.label_tokens() + sample.size.label_tokens);
  totals.set_patches(totals.patches() + sample.size.patches);
  totals.set_images(totals.images() + sample.size.grids.size());
}

// Costs, readers, owners and loads of one module. `group_of[i]` is the owning
// group of sample i.
void AddModule(const std::vector<ScheduledSample>& samples,
               const std::vector<uint32_t>& group_of,
               const MicroBatchShape& shape, const ModuleRanks& ranks,
               v1::MicroBatchSchedule* out) {
  const uint32_t samples_per_group = samples.size() / shape.grid;
  const uint32_t groups_per_rank = shape.grid / ranks.dp;
  v1::ModuleSchedule& module = *out->add_modules();
  module.set_module(ranks.module);
  std::vector<double> before(ranks.dp, 0), after(ranks.dp, 0);
  for (size_t i = 0; i < samples.size(); ++i) {
    const double cost =
        SampleCost(samples[i].size, ranks.module, shape.balance.cost());
    const uint32_t reader = i / samples_per_group / groups_per_rank;
    const uint32_t owner = group_of[i] / groups_per_rank;
    module.add_cost(cost);
    module.add_reader(reader);
    module.add_owner(owner);
    before[reader] += cost;
    after[owner] += cost;
  }
  module.mutable_load_before()->Add(before.begin(), before.end());
  module.mutable_load_after()->Add(after.begin(), after.end());
}

}  // namespace

void AddTotals(const v1::Totals& more, v1::Totals* totals) {
  totals->set_tokens(totals->tokens() + more.tokens());
  totals->set_tokens_squared(totals->tokens_squared() + more.tokens_squared());
  totals->set_label_tokens(totals->label_tokens() + more.label_tokens());
  totals->set_patches(totals->patches() + more.patches());
  totals->set_images(totals->images() + more.images());
}

absl::StatusOr<v1::MicroBatchSchedule> ScheduleMicroBatch(
    const std::vector<ScheduledSample>& samples, uint64_t first_position,
    uint32_t number, const MicroBatchShape& shape) {
  const std::vector<double> costs = JointCosts(samples, shape.balance);
  BALLAST_ASSIGN_OR_RETURN(Groups groups, OwningGroups(samples, costs, shape));
  const std::vector<uint32_t> dummies =
      AlignVisionRanks(samples, costs, shape, &groups);
  std::vector<uint32_t> group_of(samples.size());
  std::vector<uint32_t> place_of(samples.size());
  uint32_t place = 0;
  for (uint32_t g = 0; g < groups.size(); ++g) {
    for (const uint32_t i : groups[g]) {
      group_of[i] = g;
      place_of[i] = place++;
    }
  }
  v1::MicroBatchSchedule out;
  out.set_first_position(first_position);
  out.mutable_totals();
  for (size_t i = 0; i < samples.size(); ++i) {
    AddSample(samples[i], &out);
    out.add_slot(number);
    out.add_place(place_of[i]);
  }
  for (const ModuleRanks& ranks : shape.modules) {
    AddModule(samples, group_of, shape, ranks, &out);
    if (ranks.module == v1::MODULE_VISION) {
      out.mutable_modules()->rbegin()->mutable_dummy_rank()->Add(
          dummies.begin(), dummies.end());
    }
  }
  return out;
}

}  // namespace ballast
