#ifndef BALLAST_SERVER_MEDIA_IMAGE_QUAD_TABLE_H_
#define BALLAST_SERVER_MEDIA_IMAGE_QUAD_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/image/resample_weights.h"

namespace ballast {

// A quad is four adjacent pixels of a row or a column, the first at a multiple
// of four: the content of one 32-bit lane of the vector kernels. An output
// pixel is a weighted sum over a run of quads. Pixels of the first and last
// quad that the filter does not reach have weight 0.
struct QuadTaps {
  uint32_t first = 0;  // quad
  uint32_t count = 0;  // quads, at least 1
  // For kDigits with a count of 1: the filter reaches at most four pixels. The
  // words are for the four pixels that begin this many bits (eight a pixel)
  // into the first quad; they may end in the next quad.
  uint32_t shift = 0;
  size_t words = 0;  // index of the words of the first quad
};

// How the four weights of a quad are split into words for vector
// multiplication. Both are exact: the shifted parts add up to the weights.
enum class QuadFormat {
  // Three words of four signed bytes: the weights' base-256 digits, highest
  // first, for instructions that multiply bytes.
  kDigits,
  // Four words of two int16: the high parts (weight >> kLowBits) of pixels 0
  // and 2, then the high parts of pixels 1 and 3, then the low parts in the
  // same order.
  kHalves,
};

inline constexpr size_t kMaxQuadWords = 4;
inline constexpr int kLowBits = 12;

constexpr size_t QuadWords(QuadFormat format) {
  return format == QuadFormat::kDigits ? 3 : 4;
}

// The words of four weights, each at most 127 * (2^16 + 2^8 + 1) in magnitude:
// twice the filter's maximum.
std::array<uint32_t, kMaxQuadWords> CutQuad(
    QuadFormat format, const std::array<int32_t, 4>& weights);

// A filter (resample_weights.h) between two lengths, in quads.
// Building again reuses the memory. Thread-compatible.
class QuadTable {
 public:
  // An upper bound of the memory that Build takes.
  static uint64_t MostBytes(QuadFormat format, ResampleFilter filter,
                            uint32_t source, uint32_t output);

  // For equal lengths the filter is the identity, as all libraries omit a pass
  // that changes nothing. Neither length is 0.
  void Build(QuadFormat format, const Resampling& resampling, uint32_t source,
             uint32_t output);

  QuadFormat format() const { return format_; }
  const Resampling& resampling() const { return resampling_; }
  uint32_t source() const { return source_; }
  uint32_t output() const { return output_; }
  // One entry per output pixel. Ends with weight 0 are omitted, so the first
  // quad may decrease from one output pixel to the next.
  const std::vector<QuadTaps>& taps() const { return taps_; }
  const uint32_t* words(const QuadTaps& taps) const {
    return words_.data() + taps.words;
  }
  // The largest number of quads of an output pixel.
  uint32_t most_quads() const { return most_quads_; }
  // Memory held, in bytes.
  size_t bytes() const;

 private:
  void Add(uint32_t first, const std::vector<int32_t>& weights);

  QuadFormat format_ = QuadFormat::kHalves;
  Resampling resampling_;
  uint32_t source_ = 0;
  uint32_t output_ = 0;
  uint32_t most_quads_ = 0;
  std::vector<QuadTaps> taps_;
  std::vector<uint32_t> words_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_IMAGE_QUAD_TABLE_H_
