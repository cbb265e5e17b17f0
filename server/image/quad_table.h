#ifndef BALLAST_SERVER_IMAGE_QUAD_TABLE_H_
#define BALLAST_SERVER_IMAGE_QUAD_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast {

// A quad is four neighbouring pixels, of a row or of a column, the first at a
// multiple of four: what one 32-bit lane of the vector kernels holds. An output
// pixel is a weighted sum over a run of quads; where the filter does not reach
// a pixel of its first or last quad, that pixel's weight is 0.
struct QuadTaps {
  uint32_t first = 0;  // quad
  uint32_t count = 0;  // quads, at least 1
  // kDigits with a count of 1: the filter reaches at most four pixels, and the
  // words are of the four that begin so many bits (eight a pixel) into the
  // first quad; they may end in the quad after it.
  uint32_t shift = 0;
  size_t words = 0;  // of the first of `count` quads
};

// How the four weights of a quad are cut into words that vector instructions
// multiply with. Either is exact: shifted, the parts add up to the weights.
enum class QuadFormat {
  // Three words of four signed bytes: the weights' digits to the base 256,
  // highest first; for instructions that multiply bytes.
  kDigits,
  // Four words of two int16: the high parts (weight >> kLowBits) of pixels 0
  // and 2, those of pixels 1 and 3, and the low parts of the same.
  kHalves,
};

inline constexpr size_t kMostQuadWords = 4;
inline constexpr int kLowBits = 12;

constexpr size_t QuadWords(QuadFormat format) {
  return format == QuadFormat::kDigits ? 3 : 4;
}

// The words of four weights, each at most 127 * (2^16 + 2^8 + 1) in size: twice
// what the filter gives.
std::array<uint32_t, kMostQuadWords> CutQuad(
    QuadFormat format, const std::array<int32_t, 4>& weights);

// The bicubic filter (resample_weights.h) between two lengths, in quads.
// Building anew keeps the memory. Thread-compatible.
class QuadTable {
 public:
  // At least what Build takes.
  static uint64_t MostBytes(QuadFormat format, uint32_t source,
                            uint32_t output);

  // Of equal lengths it is the identity, as Pillow leaves out a pass that would
  // change nothing. Neither length is 0.
  void Build(QuadFormat format, uint32_t source, uint32_t output);

  QuadFormat format() const { return format_; }
  uint32_t source() const { return source_; }
  uint32_t output() const { return output_; }
  // One an output pixel. Ends that weigh nothing are left out, so that the
  // first quad may fall from one output pixel to the next.
  const std::vector<QuadTaps>& taps() const { return taps_; }
  const uint32_t* words(const QuadTaps& taps) const {
    return words_.data() + taps.words;
  }
  // Of one output pixel.
  uint32_t most_quads() const { return most_quads_; }
  // Memory held.
  size_t bytes() const;

 private:
  void Add(uint32_t first, const std::vector<int32_t>& weights);

  QuadFormat format_ = QuadFormat::kHalves;
  uint32_t source_ = 0;
  uint32_t output_ = 0;
  uint32_t most_quads_ = 0;
  std::vector<QuadTaps> taps_;
  std::vector<uint32_t> words_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_QUAD_TABLE_H_
