#include "server/schedule/packed_ownership.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/align.h"
#include "common/status_macros.h"
#include "server/schedule/presence.h"
#include "server/schedule/split_ownership.h"

namespace ballast {
namespace {

// Vision ranks that have no image while others do.
std::vector<uint32_t> Dummies(const std::vector<ScheduledSample>& samples,
                              const Groups& groups,
                              const MicroBatchShape& shape) {
  std::vector<bool> has_image;
  has_image.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    has_image.push_back(!sample.size.grids.empty());
  }
  for (const ModuleRanks& ranks : shape.modules) {
    if (ranks.module == v1::MODULE_VISION) {
      return RanksWithoutImage(has_image, shape.grid / ranks.dp, groups);
    }
  }
  return {};
}

// The padded lengths. Errors: INVALID_ARGUMENT (a sample that fits no pack).
absl::StatusOr<std::vector<uint32_t>> PaddedLengths(
    const std::vector<ScheduledSample>& samples, const PackShape& packs) {
  std::vector<uint32_t> lengths;
  lengths.reserve(samples.size());
  for (const ScheduledSample& sample : samples) {
    const uint64_t length = AlignUp(sample.size.tokens, packs.align);
    if (length > packs.capacity) {
      return absl::InvalidArgumentError(absl::StrCat(
          "position ", sample.position, " has ", length,
          " tokens with padding; a pack holds ", packs.capacity,
          " (packing.max_tokens_per_rank * cp): raise that, or lower "
          "batch.max_tokens"));
    }
    lengths.push_back(static_cast<uint32_t>(length));
  }
  return lengths;
}

}  // namespace

absl::StatusOr<std::vector<Ownership>> AssignPackedOwners(
    const std::vector<ScheduledSample>& samples, const MicroBatchShape& shape,
    const PackShape& packs) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           PaddedLengths(samples, packs));
  const PackLimits limits = {packs.capacity,
                             shape.grid * packs.micro_batch_multiple};
  const bool as_reference =
      shape.balance.algorithm() == v1::Balance::ALGORITHM_LPT;
  BALLAST_ASSIGN_OR_RETURN(Groups filled, as_reference
                                              ? PackInOrder(lengths, limits)
                                              : PackBalanced(lengths, limits));
  const std::vector<ModuleShards> shards = MakeShards(samples, shape);
  std::vector<Ownership> owners;
  for (auto first = filled.begin(); first != filled.end();
       first += shape.grid) {
    Groups groups(std::make_move_iterator(first),
                  std::make_move_iterator(first + shape.grid));
    if (!as_reference) groups = NumberGroups(std::move(groups), 1, shards);
    Ownership& ownership = owners.emplace_back();
    if (!IsSplit(shape) && shape.balance.align_images()) {
      ownership.dummy_ranks = Dummies(samples, groups, shape);
    }
    ownership.groups = std::move(groups);
    if (IsSplit(shape)) SplitOwners(samples, shape, &ownership);
  }
  return owners;
}

}  // namespace ballast
