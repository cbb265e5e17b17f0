#ifndef BALLAST_PROTO_IMAGE_CUBIC_WEIGHTS_AVX2_H_
#define BALLAST_PROTO_IMAGE_CUBIC_WEIGHTS_AVX2_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ballast {

// The places of the taps of four output pixels.
struct TapsOfFour {
  std::array<double, 4> center;
  std::array<double, 4> first;  // source pixel
  std::array<double, 4> count;
};

// Whether the processor has AVX2 and the compiler made code for it. If not, the
// functions below do nothing.
bool HasCubicWeightsAvx2();

// Row t of `rows` gets each pixel's bicubic weight of its source pixel `first`
// + t, or 0 from its `count` on. A pixel's weights add up to 1. The operations
// and their order are the same as in FilterWeights' plain code, so the bits are
// the same.
void CubicWeightsAvx2(const TapsOfFour& taps, double narrowing, size_t num_rows,
                      std::array<double, 4>* rows);

// Rounds weights to `bits` of a fraction, halves away from zero, and multiplies
// them by `unit`.
void RoundWeightsAvx2(const std::array<double, 4>* rows, size_t num_rows,
                      int bits, int32_t unit, std::array<int32_t, 4>* fixed);

}  // namespace ballast

#endif  // BALLAST_PROTO_IMAGE_CUBIC_WEIGHTS_AVX2_H_
