#include "server/schedule/ownership.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/schedule/balance.h"
#include "server/schedule/context_packs.h"
#include "server/schedule/cost_model.h"
#include "server/schedule/encoder_placement.h"
#include "server/schedule/sample_finder.h"

namespace ballast {
namespace {

// The window's groups as read: equal ranges of positions.
Groups ReadingGroups(uint32_t samples, const MicroBatchShape& shape) {
  const uint32_t per_group = shape.micro_batch / BalancedGroups(shape);
  Groups groups(samples / per_group);
  for (uint32_t i = 0; i < samples; ++i) groups[i / per_group].push_back(i);
  return groups;
}

// PayloadBytes of each sample, computed from the row that the schedule will
// hold, but as if all images were sent as pixels: which rank owns a sample must
// not depend on model.decode, so that both modes make the same batches.
std::vector<uint64_t> PayloadBytes(const std::vector<ScheduledSample>& samples,
                                   Media media, const BlockGeometry& geometry) {
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
    PayloadRow row = {sample.size.tokens, heights, widths, {}};
    row.clip_rows = sample.size.clip_rows;
    row.first_tokens = sample.size.first_tokens;
    bytes.push_back(PayloadBytes(row, media, geometry));
  }
  return bytes;
}

// The shards that one module's ranks read.
ModuleShards MakeShard(const std::vector<ScheduledSample>& samples,
                       const MicroBatchShape& shape, const ModuleRanks& ranks) {
  ModuleShards module;
  module.ranks = ranks;
  module.bytes = PayloadBytes(samples, ranks.media, shape.geometry);
  module.reader.reserve(samples.size());
  for (uint32_t i = 0; i < samples.size(); ++i) {
    module.reader.push_back(GetReader(i, ranks, shape));
  }
  return module;
}

// Returns whether the largest load exceeds the mean by at most `skip_below` of
// the mean.
bool IsBalanced(const std::vector<double>& costs, const Groups& groups,
                double skip_below) {
  const std::vector<double> loads = GroupLoads(costs, groups);
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  return *std::max_element(loads.begin(), loads.end()) <=
         mean * (1 + skip_below);
}

template <typename F>
std::vector<double> Costs(const std::vector<ScheduledSample>& samples,
                          const F& cost_of) {
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
  std::vector<std::vector<double>> costs;
  for (const ModuleRanks& ranks : shape.modules) {
    costs.push_back(Costs(samples, [&](const SampleSize& size) {
      return SampleCost(size, FindCost(ranks.module, shape));
    }));
  }
  return BalanceJoint(costs, groups, balance.equal_count());
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
  std::vector<ModuleShards> shards;
  for (const ModuleRanks& ranks : shape.modules) {
    // With split placement most images stay with their text, and their pixels
    // are far larger than the text. On separate ranks, only text counts.
    if (IsSplit(shape) && (ranks.media == Media::kText) != IsApart(shape)) {
      continue;
    }
    shards.push_back(MakeShard(samples, shape, ranks));
  }
  return NumberGroups(std::move(groups), samples.size() / shape.micro_batch,
                      shards);
}

// For each module that is an encoder, whether each sample has media for it.
using MediaOfModules = std::vector<std::vector<bool>>;

MediaOfModules FindMediaOfModules(const std::vector<ScheduledSample>& samples,
                                  const MicroBatchShape& shape) {
  MediaOfModules found(shape.modules.size());
  for (size_t m = 0; m < found.size(); ++m) {
    const Media media = shape.modules[m].media;
    if (media == Media::kText) continue;
    found[m].reserve(samples.size());
    for (const ScheduledSample& sample : samples) {
      found[m].push_back(HasMedia(sample.size, media));
    }
  }
  return found;
}

// Enforces balance.align_images in one micro-batch. With `may_swap`, samples
// are swapped between groups, for one encoder after the other. Ranks that still
// have no media for an encoder get a dummy.
void AlignEncoders(const std::vector<double>& costs,
                   const MediaOfModules& media, bool may_swap,
                   const MicroBatchShape& shape, Ownership* ownership) {
  for (size_t m = 0; may_swap && m < media.size(); ++m) {
    if (media[m].empty()) continue;
    AlignPresence(costs, media[m], shape.grid / shape.modules[m].dp,
                  &ownership->groups);
  }
  for (size_t m = 0; m < media.size(); ++m) {
    if (media[m].empty()) continue;
    ownership->modules[m].dummy_ranks = RanksWithout(
        media[m], shape.grid / shape.modules[m].dp, ownership->groups);
  }
}

// Where an encoder's placement begins with a sample that `reader` reads and
// language rank `owner` trains on, if the modules are split apart: a rank at
// the owner's server, the reader if it is one or if the server has none.
uint32_t FindHome(uint32_t reader, uint32_t owner, const ModuleRanks& encoder,
                  const ServerOfRank& language) {
  const ServerOfRank& servers = encoder.server_of_rank;
  if (servers.empty() || servers[reader] == language[owner]) return reader;
  std::vector<uint32_t> near;
  for (uint32_t r = 0; r < servers.size(); ++r) {
    if (servers[r] == language[owner]) near.push_back(r);
  }
  return near.empty() ? reader : near[reader % near.size()];
}

// Chooses an encoder's owners in one micro-batch, given its language owners.
// Rank r of both modules is the same process, unless they are split apart.
// Samples without media for it stay with their language owners, or readers.
Ownership::OfModule PlaceOnRanks(const std::vector<ScheduledSample>& samples,
                                 const Ownership& owned,
                                 const ModuleRanks& encoder,
                                 const MicroBatchShape& shape) {
  const Groups& language = owned.groups;
  const ModuleCost& cost = FindCost(encoder.module, shape);
  Ownership::OfModule placement;
  const ModuleRanks& text = GetLanguage(shape);
  placement.groups.assign(encoder.dp, {});
  // Samples are read in order, as they are in memory.
  constexpr uint32_t kElsewhere = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> homes(samples.size(), kElsewhere);
  size_t count = 0;
  for (uint32_t g = 0; g < language.size(); ++g) {
    const uint32_t owner = g / (language.size() / text.dp);
    const uint32_t shared = owned.pack_ranks.empty() ? 1 : owned.pack_ranks[g];
    uint32_t turn = 0;
    for (const uint32_t i : language[g]) {
      homes[i] = !IsApart(shape) ? owner + turn++ % shared
                                 : FindHome(GetReader(i, encoder, shape), owner,
                                            encoder, text.server_of_rank);
    }
    count += language[g].size();
  }
  std::vector<uint32_t> indexes;  // into `samples`, where they have media
  std::vector<double> costs;
  std::vector<EncoderSample> placed;
  indexes.reserve(count);
  costs.reserve(count);
  placed.reserve(count);
  for (uint32_t i = 0; i < samples.size(); ++i) {
    if (homes[i] == kElsewhere) continue;
    const SampleSize& size = samples[i].size;
    if (!HasMedia(size, encoder.media)) {
      placement.groups[homes[i]].push_back(i);
      continue;
    }
    indexes.push_back(i);
    costs.push_back(SampleCost(size, cost));
    placed.push_back(
        {0, EmbeddingTokens(size, encoder.media, shape), homes[i]});
  }
  const std::vector<int64_t> fixed =
      FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
  for (size_t k = 0; k < placed.size(); ++k) placed[k].cost = fixed[k];
  EncoderRanks wanted;
  wanted.count = encoder.dp;
  wanted.server_of_rank = encoder.server_of_rank;
  wanted.skip_below = shape.balance.skip_below();
  wanted.align = shape.balance.align_images();
  const std::vector<uint32_t> owners = PlaceEncoder(placed, wanted);
  std::vector<bool> has_media(samples.size(), false);
  for (size_t k = 0; k < placed.size(); ++k) {
    placement.groups[owners[k]].push_back(indexes[k]);
    has_media[indexes[k]] = true;
  }
  if (wanted.align) {
    placement.dummy_ranks = RanksWithout(has_media, 1, placement.groups);
  }
  return placement;
}

// Chooses the owners of every encoder in one micro-batch.
void SplitOwners(const std::vector<ScheduledSample>& samples,
                 const MicroBatchShape& shape, Ownership* ownership) {
  for (size_t m = 0; m < shape.modules.size(); ++m) {
    if (shape.modules[m].media == Media::kText) continue;
    ownership->modules[m] =
        PlaceOnRanks(samples, *ownership, shape.modules[m], shape);
  }
}

// What each sample costs all encoders together, in fixed point.
std::vector<int64_t> EncoderLoads(const std::vector<ScheduledSample>& samples,
                                  const MicroBatchShape& shape) {
  const std::vector<double> costs = Costs(samples, [&](const SampleSize& size) {
    double cost = 0;
    for (const ModuleRanks& ranks : shape.modules) {
      if (ranks.media == Media::kText) continue;
      cost += SampleCost(size, FindCost(ranks.module, shape));
    }
    return cost;
  });
  return FixedPoint(costs, std::accumulate(costs.begin(), costs.end(), 0.0));
}

// The padded lengths. Errors: INVALID_ARGUMENT (a sample that fits no pack).
absl::StatusOr<std::vector<uint32_t>> PaddedLengths(
    const std::vector<ScheduledSample>& samples, const PackShape& packs) {
  std::vector<uint32_t> lengths;
  lengths.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    const uint64_t length = PaddedTokens(sample.size, packs.align);
    if (length > packs.capacity) {
      return absl::InvalidArgumentError(absl::StrCat(
          "position ", sample.position, " has ", length,
          " tokens with padding; a pack holds ", packs.capacity,
          packs.dynamic_cp > 1
              ? " (packing.max_tokens_per_rank * packing.dynamic_cp)"
              : " (packing.max_tokens_per_rank * cp)",
          ": raise that, or lower batch.max_tokens"));
    }
    lengths.push_back(static_cast<uint32_t>(length));
  }
  return lengths;
}

}  // namespace

bool IsSplit(const MicroBatchShape& shape) {
  return shape.balance.placement() == v1::Balance::PLACEMENT_SPLIT &&
         shape.balance.delivery() != v1::DELIVERY_OFF;
}

bool IsApart(const MicroBatchShape& shape) {
  return IsSplit(shape) && !shape.colocated;
}

const ModuleRanks& GetLanguage(const MicroBatchShape& shape) {
  return *std::find_if(
      shape.modules.begin(), shape.modules.end(),
      [](const ModuleRanks& ranks) { return IsLanguage(ranks.module); });
}

uint32_t BalancedGroups(const MicroBatchShape& shape) {
  return IsApart(shape) ? GetLanguage(shape).dp : shape.grid;
}

int64_t EmbeddingTokens(const SampleSize& size, Media media,
                        const MicroBatchShape& shape) {
  return media == Media::kImages
             ? static_cast<int64_t>(size.patches / shape.patches_a_token)
             : std::accumulate(size.clip_tokens.begin(), size.clip_tokens.end(),
                               int64_t{0});
}

const ModuleCost& FindCost(v1::Module module, const MicroBatchShape& shape) {
  static constexpr ModuleCost kNothing;
  for (const ModuleCost& cost : shape.costs) {
    if (cost.module == module) return cost;
  }
  return kNothing;
}

uint32_t GetReader(uint32_t index, const ModuleRanks& ranks,
                   const MicroBatchShape& shape) {
  const uint32_t group =
      index % shape.micro_batch / (shape.micro_batch / shape.grid);
  return group / (shape.grid / ranks.dp);
}

std::vector<ModuleShards> MakeShards(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape) {
  std::vector<ModuleShards> shards;
  for (const ModuleRanks& ranks : shape.modules) {
    if (IsApart(shape) && IsEncoder(ranks.module)) continue;
    shards.push_back(MakeShard(samples, shape, ranks));
  }
  return shards;
}

absl::StatusOr<std::vector<Ownership>> AssignOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape) {
  const std::vector<double> costs = Costs(samples, [&](const SampleSize& size) {
    return IsSplit(shape)
               ? SampleCost(size, FindCost(v1::MODULE_LANGUAGE, shape))
               : JointCost(size, shape.costs);
  });
  BALLAST_ASSIGN_OR_RETURN(Groups groups, WindowGroups(samples, costs, shape));
  const MediaOfModules media = FindMediaOfModules(samples, shape);
  std::vector<Ownership> owners;
  const uint32_t together = BalancedGroups(shape);
  for (auto first = groups.begin(); first != groups.end(); first += together) {
    Ownership& ownership = owners.emplace_back();
    ownership.groups.assign(std::make_move_iterator(first),
                            std::make_move_iterator(first + together));
    ownership.modules.resize(shape.modules.size());
    if (IsSplit(shape)) {
      SplitOwners(samples, shape, &ownership);
    } else if (shape.balance.align_images()) {
      AlignEncoders(costs, media, shape.balance.delivery() != v1::DELIVERY_OFF,
                    shape, &ownership);
    }
  }
  return owners;
}

// The owners of packs, of which each `grid` are one micro-batch; `renumber`:
// in such an order that few bytes move.
static std::vector<Ownership> OwnPacks(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    Groups filled, bool renumber) {
  const std::vector<ModuleShards> shards = MakeShards(samples, shape);
  const MediaOfModules media = FindMediaOfModules(samples, shape);
  std::vector<Ownership> owners;
  for (auto first = filled.begin(); first != filled.end();
       first += shape.grid) {
    Ownership& ownership = owners.emplace_back();
    ownership.groups.assign(std::make_move_iterator(first),
                            std::make_move_iterator(first + shape.grid));
    if (renumber) {
      ownership.groups = NumberGroups(std::move(ownership.groups), 1, shards);
    }
    ownership.modules.resize(shape.modules.size());
    if (IsSplit(shape)) {
      SplitOwners(samples, shape, &ownership);
    } else if (shape.balance.align_images()) {
      AlignEncoders({}, media, /*may_swap=*/false, shape, &ownership);
    }
  }
  return owners;
}

// The owners of packs of language that several ranks share.
static absl::StatusOr<std::vector<Ownership>> ShareOwners(
    const std::vector<ScheduledSample>& samples,
    const std::vector<uint32_t>& lengths, const MicroBatchShape& shape,
    const PackShape& packs) {
  const ModuleCost& cost = FindCost(v1::MODULE_LANGUAGE, shape);
  const bool has_cost = cost.linear > 0 || cost.quadratic > 0;
  const std::vector<double> costs = Costs(samples, [&](const SampleSize& size) {
    if (has_cost) return SampleCost(size, cost);
    return static_cast<double>(PaddedSquares(size, /*align=*/1));
  });
  BALLAST_ASSIGN_OR_RETURN(std::vector<ContextMicroBatch> shared,
                           PackByContext(lengths, costs,
                                         {shape.grid, packs.dynamic_cp,
                                          packs.capacity / packs.dynamic_cp,
                                          packs.micro_batch_multiple}));
  std::vector<Ownership> owners;
  for (ContextMicroBatch& micro_batch : shared) {
    Ownership& ownership = owners.emplace_back();
    ownership.groups.resize(shape.grid);
    ownership.pack_ranks.resize(shape.grid);
    ownership.modules.resize(shape.modules.size());
    for (ContextPack& pack : micro_batch) {
      ownership.groups[pack.first_rank] = std::move(pack.samples);
      ownership.pack_ranks[pack.first_rank] = pack.ranks;
    }
    SplitOwners(samples, shape, &ownership);
  }
  return owners;
}

absl::StatusOr<std::vector<Ownership>> AssignPackedOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    const PackShape& packs) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           PaddedLengths(samples, packs));
  if (packs.dynamic_cp > 1) return ShareOwners(samples, lengths, shape, packs);
  const PackLimits limits = {packs.capacity,
                             shape.grid * packs.micro_batch_multiple};
  const bool as_reference =
      shape.balance.algorithm() == v1::Balance::ALGORITHM_LPT;
  std::vector<uint64_t> squares;
  squares.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    squares.push_back(PaddedSquares(sample.size, packs.align));
  }
  BALLAST_ASSIGN_OR_RETURN(
      Groups filled, as_reference ? PackInOrder(lengths, limits)
                                  : PackBalanced(lengths, squares, limits));
  if (!as_reference && packs.encoder_slack > 0) {
    EvenEncoders(lengths, squares, EncoderLoads(samples, shape), limits,
                 packs.encoder_slack, &filled);
  }
  return OwnPacks(samples, shape, std::move(filled),
                  /*renumber=*/!as_reference);
}

absl::StatusOr<std::vector<Ownership>> AssignGivenPacks(
    const std::vector<ScheduledSample>& samples,
    const std::vector<uint32_t>& pack_of, const MicroBatchShape& shape,
    const PackShape& packs) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           PaddedLengths(samples, packs));
  const uint32_t count =
      samples.empty() ? 0
                      : 1 + *std::max_element(pack_of.begin(), pack_of.end());
  const uint32_t multiple = shape.grid * packs.micro_batch_multiple;
  if (count % multiple != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "order.plan gives ", count, " packs; wanted a multiple of the grid (",
        shape.grid, ") times packing.virtual_pipeline_group (",
        packs.micro_batch_multiple, ")"));
  }
  Groups filled(count);
  std::vector<uint64_t> tokens(count);
  for (uint32_t i = 0; i < samples.size(); ++i) {
    filled[pack_of[i]].push_back(i);
    tokens[pack_of[i]] += lengths[i];
  }
  for (uint32_t p = 0; p < count; ++p) {
    if (tokens[p] <= packs.capacity) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "order.plan puts ", filled[p].size(), " samples of ", tokens[p],
        " tokens with padding into pack ", p, ", which holds ", packs.capacity,
        " (packing.max_tokens_per_rank * cp)"));
  }
  return OwnPacks(samples, shape, std::move(filled), /*renumber=*/false);
}

}  // namespace ballast
