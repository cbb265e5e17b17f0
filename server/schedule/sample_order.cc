#include "server/schedule/sample_order.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "server/schedule/group_order.h"

namespace ballast {
namespace {

constexpr double kDecimals = 1e6;

// A weight of 0 stays 0; every other weight becomes at least 1.
uint64_t AtLeastOne(double weight, double integer) {
  return weight > 0 ? std::max<int64_t>(1, integer) : 0;
}

// The weights with six decimals; none if the pattern does not fit.
std::vector<uint64_t> ExactWeights(absl::Span<const double> weights,
                                   uint64_t max_pattern) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Doubles hold integers below 2^53 exactly.
  if (sum * kDecimals >= 9e15) return {};
  std::vector<uint64_t> integers;
  uint64_t divisor = 0;
  for (const double weight : weights) {
    integers.push_back(AtLeastOne(weight, std::round(weight * kDecimals)));
    divisor = std::gcd(divisor, integers.back());
  }
  uint64_t total = 0;
  for (uint64_t& weight : integers) total += weight /= divisor;
  if (total > max_pattern) return {};
  return integers;
}

std::vector<uint64_t> IntegerWeights(absl::Span<const double> weights,
                                     uint64_t max_pattern) {
  std::vector<uint64_t> integers = ExactWeights(weights, max_pattern);
  if (!integers.empty()) return integers;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Rounding down leaves room for raising weights that would become 0. A source
  // that is not drawn must not count: it may join a job that has begun.
  const auto drawn = std::count_if(weights.begin(), weights.end(),
                                   [](double weight) { return weight > 0; });
  const double scale = static_cast<double>(max_pattern - drawn) / sum;
  for (const double weight : weights) {
    integers.push_back(AtLeastOne(weight, std::floor(weight * scale)));
  }
  return integers;
}

}  // namespace

bool Mixture::IsExact(absl::Span<const double> weights, uint64_t max_pattern) {
  return !ExactWeights(weights, max_pattern).empty();
}

Mixture::Mixture(absl::Span<const double> weights, uint64_t max_pattern)
    : weights_(IntegerWeights(weights, max_pattern)) {
  const uint64_t period =
      std::accumulate(weights_.begin(), weights_.end(), uint64_t{0});
  std::vector<uint32_t> drawn(weights_.size(), 0);
  pattern_.reserve(period);
  for (uint64_t t = 0; t < period; ++t) {
    uint32_t chosen = 0;
    uint64_t earliest = ~uint64_t{0};
    for (uint32_t s = 0; s < weights_.size(); ++s) {
      if (weights_[s] == 0) continue;
      const uint64_t release = drawn[s] * period / weights_[s];
      const uint64_t deadline =
          ((drawn[s] + uint64_t{1}) * period + weights_[s] - 1) / weights_[s];
      if (release <= t && deadline < earliest) {
        earliest = deadline;
        chosen = s;
      }
    }
    pattern_.push_back({chosen, drawn[chosen]++});
  }
}

Mixture::Draw Mixture::At(uint64_t position) const {
  const PatternDraw& draw = pattern_[position % pattern_.size()];
  const uint64_t rounds = position / pattern_.size();
  return {draw.source, rounds * weights_[draw.source] + draw.number};
}

uint64_t Mixture::GetPosition(uint32_t source, uint64_t number) const {
  constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();
  if (weights_[source] == 0) return kUnbounded;
  const uint64_t rounds = number / weights_[source];
  const auto found = std::find_if(
      pattern_.begin(), pattern_.end(), [&](const PatternDraw& candidate) {
        return candidate.source == source &&
               candidate.number == number % weights_[source];
      });
  const uint64_t offset = found - pattern_.begin();
  if (rounds > (kUnbounded - offset) / pattern_.size()) return kUnbounded;
  return rounds * pattern_.size() + offset;
}

std::vector<uint64_t> Mixture::DrawsBefore(uint64_t position) const {
  std::vector<uint64_t> draws = weights_;
  for (uint64_t& each : draws) each *= position / pattern_.size();
  for (uint64_t t = 0; t < position % pattern_.size(); ++t) {
    ++draws[pattern_[t].source];
  }
  return draws;
}

namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

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
    if (is_new)
      mixtures_.emplace_back(change.weights, Mixture::kMaxPatternOfChange);
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

uint64_t SampleOrder::GetPosition(uint32_t source, uint64_t number) const {
  for (const Range& range : ranges_) {
    if (range.drawn[source] > number) break;
    const uint64_t offset = mixtures_[range.mixture].GetPosition(
        source, number - range.drawn[source]);
    if (offset >= EndOfRange(range) - range.first_position) continue;
    return range.first_position + offset;
  }
  return kUnbounded;
}

uint64_t SampleOrder::GetEnd(uint32_t epochs) const {
  uint64_t end = kUnbounded;
  for (uint32_t s = 0; s < sources_.size(); ++s) {
    if (sources_[s].size > end / std::max(epochs, 1u)) continue;
    end = std::min(end, GetPosition(s, epochs * sources_[s].size));
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
