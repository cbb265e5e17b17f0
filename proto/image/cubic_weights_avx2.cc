#include "proto/image/cubic_weights_avx2.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define BALLAST_AVX2 __attribute__((target("avx2")))

namespace ballast {
namespace {

BALLAST_AVX2 inline __m256d All(double value) { return _mm256_set1_pd(value); }

// Keys' cubic convolution, in Pillow's order of operations.
BALLAST_AVX2 inline __m256d Cubic(__m256d x) {
  constexpr double kA = -0.5;
  x = _mm256_andnot_pd(All(-0.0), x);
  __m256d inner = _mm256_sub_pd(_mm256_mul_pd(All(kA + 2.0), x), All(kA + 3.0));
  inner = _mm256_mul_pd(_mm256_mul_pd(inner, x), x);
  inner = _mm256_add_pd(inner, All(1.0));
  __m256d outer = _mm256_mul_pd(_mm256_sub_pd(x, All(5.0)), x);
  outer = _mm256_mul_pd(_mm256_add_pd(outer, All(8.0)), x);
  outer = _mm256_mul_pd(_mm256_sub_pd(outer, All(4.0)), All(kA));
  outer = _mm256_and_pd(outer, _mm256_cmp_pd(x, All(2.0), _CMP_LT_OQ));
  return _mm256_blendv_pd(outer, inner, _mm256_cmp_pd(x, All(1.0), _CMP_LT_OQ));
}

}  // namespace

bool HasCubicWeightsAvx2() { return __builtin_cpu_supports("avx2") != 0; }

BALLAST_AVX2 void CubicWeightsAvx2(const TapsOfFour& taps, double narrowing,
                                   size_t num_rows,
                                   std::array<double, 4>* rows) {
  const __m256d center = _mm256_loadu_pd(taps.center.data());
  const __m256d count = _mm256_loadu_pd(taps.count.data());
  __m256d x = _mm256_loadu_pd(taps.first.data());
  __m256d tap = _mm256_setzero_pd();
  __m256d sum = _mm256_setzero_pd();
  for (size_t t = 0; t < num_rows; ++t) {
    const __m256d at = _mm256_add_pd(_mm256_sub_pd(x, center), All(0.5));
    const __m256d weight =
        _mm256_and_pd(Cubic(_mm256_mul_pd(at, All(narrowing))),
                      _mm256_cmp_pd(tap, count, _CMP_LT_OQ));
    _mm256_storeu_pd(rows[t].data(), weight);
    sum = _mm256_add_pd(sum, weight);
    x = _mm256_add_pd(x, All(1.0));
    tap = _mm256_add_pd(tap, All(1.0));
  }
  // Weights whose sum is 0 stay as they are.
  const __m256d is_zero = _mm256_cmp_pd(sum, _mm256_setzero_pd(), _CMP_EQ_OQ);
  sum = _mm256_blendv_pd(sum, All(1.0), is_zero);
  for (size_t t = 0; t < num_rows; ++t) {
    double* const row = rows[t].data();
    _mm256_storeu_pd(row, _mm256_div_pd(_mm256_loadu_pd(row), sum));
  }
}

BALLAST_AVX2 void RoundWeightsAvx2(const std::array<double, 4>* rows,
                                   size_t num_rows, int bits, int32_t unit,
                                   std::array<int32_t, 4>* fixed) {
  const __m256d scale = All(static_cast<double>(1 << bits));
  const __m128i units = _mm_set1_epi32(unit);
  for (size_t t = 0; t < num_rows; ++t) {
    const __m256d scaled =
        _mm256_mul_pd(_mm256_loadu_pd(rows[t].data()), scale);
    const __m256d signed_half =
        _mm256_or_pd(All(0.5), _mm256_and_pd(scaled, All(-0.0)));
    const __m128i rounded =
        _mm256_cvttpd_epi32(_mm256_add_pd(signed_half, scaled));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(fixed[t].data()),
                     _mm_mullo_epi32(rounded, units));
  }
}

}  // namespace ballast

#else

namespace ballast {

bool HasCubicWeightsAvx2() { return false; }
void CubicWeightsAvx2(const TapsOfFour&, double, size_t,
                      std::array<double, 4>*) {}
void RoundWeightsAvx2(const std::array<double, 4>*, size_t, int, int32_t,
                      std::array<int32_t, 4>*) {}

}  // namespace ballast

#endif
