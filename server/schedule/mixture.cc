#include "server/schedule/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ballast {
namespace {

constexpr double kDecimals = 1e6;

// A weight of 0 stays 0; every other weight becomes at least 1.
uint64_t AtLeastOne(double weight, double integer) {
  return weight > 0 ? std::max<int64_t>(1, integer) : 0;
}

std::vector<uint64_t> IntegerWeights(absl::Span<const double> weights,
                                     uint64_t max_pattern) {
  std::vector<uint64_t> integers;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Doubles hold integers below 2^53 exactly.
  if (sum * kDecimals < 9e15) {
    uint64_t divisor = 0;
    for (const double weight : weights) {
      integers.push_back(AtLeastOne(weight, std::round(weight * kDecimals)));
      divisor = std::gcd(divisor, integers.back());
    }
    uint64_t total = 0;
    for (uint64_t& weight : integers) total += weight /= divisor;
    if (total <= max_pattern) return integers;
    integers.clear();
  }
  // Rounding down leaves room for raising weights that would become 0.
  const double scale = static_cast<double>(max_pattern - weights.size()) / sum;
  for (const double weight : weights) {
    integers.push_back(AtLeastOne(weight, std::floor(weight * scale)));
  }
  return integers;
}

}  // namespace

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

}  // namespace ballast
