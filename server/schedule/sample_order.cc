#include "server/schedule/sample_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "server/schedule/permutation.h"

namespace ballast {
namespace {

std::vector<double> Weights(const std::vector<SampleOrder::Source>& sources) {
  std::vector<double> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

SampleOrder::SampleOrder(std::vector<Source> sources, uint64_t seed,
                         bool shuffle)
    : sources_(std::move(sources)),
      shuffle_(shuffle),
      mixture_(Weights(sources_)) {
  for (const Source& source : sources_) {
    // Keyed by name, so that adding a source does not reshuffle the others.
    keys_.push_back(
        XXH3_64bits_withSeed(source.name.data(), source.name.size(), seed));
    groups_.push_back(
        source.group_starts.empty()
            ? nullptr
            : std::make_shared<GroupOrder>(source.group_starts, source.size,
                                           source.open_groups, keys_.back()));
  }
}

SampleOrder::Sample SampleOrder::At(uint64_t position) const {
  const Mixture::Draw draw = mixture_.At(position);
  const uint64_t size = sources_[draw.source].size;
  const uint64_t epoch = draw.number / size;
  const uint64_t within_epoch = draw.number % size;
  if (!shuffle_) return {draw.source, within_epoch, epoch};
  if (groups_[draw.source] != nullptr) {
    return {draw.source, groups_[draw.source]->At(epoch, within_epoch), epoch};
  }
  const Permutation permutation(size, Mix64(keys_[draw.source] + Mix64(epoch)));
  return {draw.source, permutation(within_epoch), epoch};
}

uint64_t SampleOrder::EndOf(uint32_t epochs) const {
  uint64_t end = std::numeric_limits<uint64_t>::max();
  for (uint32_t s = 0; s < sources_.size(); ++s) {
    if (sources_[s].size > end / std::max(epochs, 1u)) continue;
    end = std::min(end, mixture_.PositionOf(s, epochs * sources_[s].size));
  }
  return end;
}

}  // namespace ballast
