#include "server/schedule/sample_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "server/schedule/permutation.h"

namespace ballast {
namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

// Bounds the tables of all changes together.
constexpr uint64_t kMaxPatternOfChange = uint64_t{1} << 16;

std::vector<double> Weights(const std::vector<SampleOrder::Source>& sources) {
  std::vector<double> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

SampleOrder::SampleOrder(std::vector<Source> sources,
                         const std::vector<Change>& changes, uint64_t seed,
                         bool shuffle)
    : sources_(std::move(sources)), shuffle_(shuffle) {
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
  mixtures_.emplace_back(Weights(sources_));
  ranges_.push_back({0, 0, std::vector<uint64_t>(sources_.size(), 0)});
  // Weights that return later share a table.
  std::map<std::vector<double>, uint32_t> known = {{Weights(sources_), 0}};
  for (const Change& change : changes) {
    const auto [mixture, is_new] =
        known.emplace(change.weights, mixtures_.size());
    if (is_new) mixtures_.emplace_back(change.weights, kMaxPatternOfChange);
    const Range& last = ranges_.back();
    Range next = {change.first_position, mixture->second, last.drawn};
    const std::vector<uint64_t> draws = mixtures_[last.mixture].DrawsBefore(
        change.first_position - last.first_position);
    for (size_t s = 0; s < draws.size(); ++s) next.drawn[s] += draws[s];
    ranges_.push_back(std::move(next));
  }
}

const SampleOrder::Range& SampleOrder::GetRange(uint64_t position) const {
  if (position >= ranges_.back().first_position) return ranges_.back();
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), position,
                                      [](uint64_t wanted, const Range& range) {
                                        return wanted < range.first_position;
                                      });
  return *std::prev(after);
}

uint64_t SampleOrder::EndOfRange(const Range& range) const {
  return &range == &ranges_.back() ? kUnbounded : (&range + 1)->first_position;
}

SampleOrder::Sample SampleOrder::At(uint64_t position) const {
  const Range& range = GetRange(position);
  const Mixture::Draw draw =
      mixtures_[range.mixture].At(position - range.first_position);
  const uint64_t number = range.drawn[draw.source] + draw.number;
  const uint64_t size = sources_[draw.source].size;
  const uint64_t epoch = number / size;
  const uint64_t within_epoch = number % size;
  if (!shuffle_) return {draw.source, within_epoch, epoch};
  if (groups_[draw.source] != nullptr) {
    return {draw.source, groups_[draw.source]->At(epoch, within_epoch), epoch};
  }
  const Permutation permutation(size, Mix64(keys_[draw.source] + Mix64(epoch)));
  return {draw.source, permutation(within_epoch), epoch};
}

uint64_t SampleOrder::GetEnd(uint32_t epochs) const {
  uint64_t end = kUnbounded;
  for (uint32_t s = 0; s < sources_.size(); ++s) {
    if (sources_[s].size > end / std::max(epochs, 1u)) continue;
    const uint64_t number = epochs * sources_[s].size;
    for (const Range& range : ranges_) {
      if (range.drawn[s] > number) break;
      const uint64_t offset =
          mixtures_[range.mixture].GetPosition(s, number - range.drawn[s]);
      if (offset >= EndOfRange(range) - range.first_position) continue;
      end = std::min(end, range.first_position + offset);
      break;
    }
  }
  return end;
}

void SampleOrder::AddDrawn(uint64_t first, uint64_t end,
                           std::vector<Drawn>* drawn) const {
  for (const Range& range : ranges_) {
    const uint64_t from = std::max(first, range.first_position);
    const uint64_t to = std::min(end, EndOfRange(range));
    if (from >= to) continue;
    const Mixture& mixture = mixtures_[range.mixture];
    const std::vector<uint64_t> before =
        mixture.DrawsBefore(from - range.first_position);
    const std::vector<uint64_t> after =
        mixture.DrawsBefore(to - range.first_position);
    const std::vector<double> shares = SharesAt(from);
    for (size_t s = 0; s < sources_.size(); ++s) {
      (*drawn)[s].samples += after[s] - before[s];
      (*drawn)[s].wanted += shares[s] * static_cast<double>(to - from);
    }
  }
}

std::vector<double> SampleOrder::SharesAt(uint64_t position) const {
  const std::vector<uint64_t>& weights =
      mixtures_[GetRange(position).mixture].weights();
  const double sum =
      std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  std::vector<double> shares;
  for (const uint64_t weight : weights) shares.push_back(weight / sum);
  return shares;
}

}  // namespace ballast
