#include "server/media/image/quad_table.h"

#include <algorithm>

namespace ballast {
namespace {

uint32_t TwoHalves(int32_t a, int32_t b) {
  return (static_cast<uint32_t>(a) & 0xffff) | static_cast<uint32_t>(b) << 16;
}

// Bound over all output pixels: twice the radius in weights per source or
// output pixel, whichever are more, in whole quads.
uint64_t MostWords(QuadFormat format, ResampleFilter filter, uint32_t source,
                   uint32_t output) {
  const auto diameter = static_cast<uint64_t>(2 * FilterRadius(filter));
  const uint64_t taps = diameter * std::max(source, output) + output;
  return (taps / 4 + 2 * uint64_t{output}) * QuadWords(format);
}

}  // namespace

std::array<uint32_t, kMaxQuadWords> CutQuad(
    QuadFormat format, const std::array<int32_t, 4>& weights) {
  std::array<uint32_t, kMaxQuadWords> words = {};
  if (format == QuadFormat::kHalves) {
    std::array<int32_t, 4> high, low;
    for (int i = 0; i < 4; ++i) {
      high[i] = weights[i] >> kLowBits;
      low[i] = weights[i] & ((1 << kLowBits) - 1);
    }
    return {TwoHalves(high[0], high[2]), TwoHalves(high[1], high[3]),
            TwoHalves(low[0], low[2]), TwoHalves(low[1], low[3])};
  }
  for (int i = 0; i < 4; ++i) {
    int32_t rest = weights[i];
    for (int digit = 2; digit >= 0; --digit) {
      const auto low = static_cast<int8_t>(rest & 0xff);
      words[digit] |= uint32_t{static_cast<uint8_t>(low)} << (8 * i);
      rest = (rest - low) / 256;
    }
  }
  return words;
}

uint64_t QuadTable::MostBytes(QuadFormat format, ResampleFilter filter,
                              uint32_t source, uint32_t output) {
  return MostWords(format, filter, source, output) * sizeof(uint32_t) +
         uint64_t{output} * sizeof(QuadTaps);
}

void QuadTable::Build(QuadFormat format, const Resampling& resampling,
                      uint32_t source, uint32_t output) {
  format_ = format;
  resampling_ = resampling;
  source_ = source;
  output_ = output;
  most_quads_ = 0;
  taps_.clear();
  words_.clear();
  taps_.reserve(output);
  if (source == output) {
    const std::vector<int32_t> one = {1 << kWeightBits};
    for (uint32_t i = 0; i < output; ++i) Add(i, one);
    return;
  }
  words_.reserve(MostWords(format, resampling.filter, source, output));
  FilterWeights filter(source, output, resampling);
  for (uint32_t i = 0; i < output; ++i) {
    uint32_t first = 0;
    const std::vector<int32_t>& weights = filter.Weights(i, &first);
    Add(first, weights);
  }
}

void QuadTable::Add(uint32_t first, const std::vector<int32_t>& weights) {
  // Weights at the ends of the filter often round to 0.
  size_t begin = 0;
  size_t end = weights.size();
  while (end > 1 && weights[end - 1] == 0) --end;
  while (begin + 1 < end && weights[begin] == 0) ++begin;
  const size_t start = first + begin;
  const size_t stop = first + end;
  QuadTaps taps;
  taps.words = words_.size();
  taps.first = start / 4;
  if (format_ == QuadFormat::kDigits && stop - start <= 4) {
    taps.count = 1;
    taps.shift = start % 4 * 8;
  } else {
    taps.count = (stop - 1) / 4 + 1 - taps.first;
  }
  size_t pixel = 4 * size_t{taps.first} + taps.shift / 8;
  for (uint32_t quad = 0; quad < taps.count; ++quad) {
    std::array<int32_t, 4> four = {};
    for (size_t i = 0; i < 4; ++i, ++pixel) {
      if (pixel >= start && pixel < stop) four[i] = weights[pixel - first];
    }
    const auto words = CutQuad(format_, four);
    words_.insert(words_.end(), words.begin(),
                  words.begin() + QuadWords(format_));
  }
  most_quads_ = std::max(most_quads_, taps.count);
  taps_.push_back(taps);
}

size_t QuadTable::bytes() const {
  return taps_.capacity() * sizeof(QuadTaps) +
         words_.capacity() * sizeof(uint32_t);
}

}  // namespace ballast
