#include "server/media/audio/fourier.h"

#include <cstddef>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/media/audio/fourier.cc"
// Vectors of unknown size are no members of a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = Fourier::kLanes;
// Some neighbouring lanes. No products are fused with sums, so that all
// processors get the same values.
constexpr hn::CappedTag<double, kLanes> d;
using Doubles = hn::Vec<decltype(d)>;
constexpr size_t kStep = hn::MaxLanes(d);
static_assert(kLanes % kStep == 0);

struct Point {
  // GCC 12 makes its own ones of no instruction set, and then calls no
  // vector's.
  HWY_INLINE Point() {}
  HWY_INLINE Point(Doubles re, Doubles im) : re(re), im(im) {}

  Doubles re;
  Doubles im;
};

HWY_INLINE Point Load(const double* re, const double* im) {
  return {hn::LoadU(d, re), hn::LoadU(d, im)};
}
HWY_INLINE Point operator+(const Point& a, const Point& b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Point operator-(const Point& a, const Point& b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
HWY_INLINE Point operator*(const Point& a, double factor) {
  const Doubles f = hn::Set(d, factor);
  return {hn::Mul(a.re, f), hn::Mul(a.im, f)};
}
HWY_INLINE Point Times(const Point& a, const std::complex<double>& factor) {
  const Doubles c = hn::Set(d, factor.real());
  const Doubles s = hn::Set(d, factor.imag());
  return {hn::Sub(hn::Mul(a.re, c), hn::Mul(a.im, s)),
          hn::Add(hn::Mul(a.re, s), hn::Mul(a.im, c))};
}
HWY_INLINE Point TimesMinusI(const Point& a) { return {a.im, hn::Neg(a.re)}; }

HWY_INLINE void Transform(Point (&a)[2]) {
  const Point sum = a[0] + a[1];
  a[1] = a[0] - a[1];
  a[0] = sum;
}

HWY_INLINE void Transform(Point (&a)[4]) {
  const Point even = a[0] + a[2];
  const Point even_rest = a[0] - a[2];
  const Point odd = a[1] + a[3];
  const Point odd_rest = TimesMinusI(a[1] - a[3]);
  a[0] = even + odd;
  a[1] = even_rest + odd_rest;
  a[2] = even - odd;
  a[3] = even_rest - odd_rest;
}

HWY_INLINE void Transform(Point (&a)[5]) {
  const double c1 = 0.30901699437494742410;  // cos(2 pi / 5)
  const double c2 = -0.80901699437494742410;
  const double s1 = 0.95105651629515357212;  // sin(2 pi / 5)
  const double s2 = 0.58778525229247312917;
  const Point p1 = a[1] + a[4];
  const Point p2 = a[2] + a[3];
  const Point m1 = TimesMinusI(a[1] - a[4]);
  const Point m2 = TimesMinusI(a[2] - a[3]);
  const Point r1 = a[0] + p1 * c1 + p2 * c2;
  const Point r2 = a[0] + p1 * c2 + p2 * c1;
  const Point i1 = m1 * s1 + m2 * s2;
  const Point i2 = m1 * s2 - m2 * s1;
  a[0] = a[0] + p1 + p2;
  a[1] = r1 + i1;
  a[2] = r2 + i2;
  a[3] = r2 - i2;
  a[4] = r1 - i1;
}

// One pass (Stockham, decimation in frequency) of rows of lanes, real and
// imaginary in turn.
template <size_t kRadix>
void RunPass(const double* HWY_RESTRICT from, double* HWY_RESTRICT to,
             size_t groups, size_t stride,
             const std::complex<double>* twiddles) {
  constexpr size_t kRow = 2 * kLanes;
  for (size_t p = 0; p < groups; ++p) {
    const std::complex<double>* w = twiddles + p * (kRadix - 1);
    for (size_t q = 0; q < stride; ++q) {
      const double* in = from + (p * stride + q) * kRow;
      double* out = to + (p * kRadix * stride + q) * kRow;
      for (size_t l = 0; l < kLanes; l += kStep) {
        Point a[kRadix];
        for (size_t k = 0; k < kRadix; ++k) {
          const double* at = in + k * groups * stride * kRow + l;
          a[k] = Load(at, at + kLanes);
        }
        Transform(a);
        for (size_t k = 0; k < kRadix; ++k) {
          if (k > 0) a[k] = Times(a[k], w[k - 1]);
          double* at = out + k * stride * kRow + l;
          hn::StoreU(a[k].re, d, at);
          hn::StoreU(a[k].im, d, at + kLanes);
        }
      }
    }
  }
}

void RunPass2(const double* from, double* to, size_t groups, size_t stride,
              const std::complex<double>* twiddles) {
  RunPass<2>(from, to, groups, stride, twiddles);
}
void RunPass4(const double* from, double* to, size_t groups, size_t stride,
              const std::complex<double>* twiddles) {
  RunPass<4>(from, to, groups, stride, twiddles);
}
void RunPass5(const double* from, double* to, size_t groups, size_t stride,
              const std::complex<double>* twiddles) {
  RunPass<5>(from, to, groups, stride, twiddles);
}

// The power of each bin of 2 * half real points, from the transform of the
// `half` complex points that they are in pairs.
void SplitPower(const double* HWY_RESTRICT from, size_t half,
                const std::complex<double>* split, double* HWY_RESTRICT power) {
  for (size_t k = 0; k <= half; ++k) {
    const double* z = from + k % half * 2 * kLanes;
    const double* mirrored = from + (half - k) % half * 2 * kLanes;
    double* out = power + k * kLanes;
    for (size_t l = 0; l < kLanes; l += kStep) {
      const Point a = Load(z + l, z + kLanes + l);
      const Point m = Load(mirrored + l, mirrored + kLanes + l);
      const Point b = {m.re, hn::Neg(m.im)};
      const Point x = (a + b + Times(TimesMinusI(a - b), split[k])) * 0.5;
      hn::StoreU(hn::Add(hn::Mul(x.re, x.re), hn::Mul(x.im, x.im)), d, out + l);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(RunPass2);
HWY_EXPORT(RunPass4);
HWY_EXPORT(RunPass5);
HWY_EXPORT(SplitPower);

namespace {

std::complex<double> Root(size_t k, size_t n) {
  return std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k % n) /
                             static_cast<double>(n));
}

}  // namespace

absl::StatusOr<Fourier> Fourier::Create(size_t points) {
  Fourier fourier;
  fourier.half_ = points / 2;
  size_t left = fourier.half_;
  size_t stride = 1;
  while (left > 1) {
    const size_t radix = left % 4 == 0   ? 4
                         : left % 5 == 0 ? 5
                         : left % 2 == 0 ? 2
                                         : 0;
    if (radix == 0) break;
    Pass pass = {radix, left / radix, stride, {}};
    for (size_t p = 0; p < pass.groups; ++p) {
      for (size_t k = 1; k < radix; ++k) {
        pass.twiddles.emplace_back(Root(k * p, left));
      }
    }
    left /= radix;
    stride *= radix;
    fourier.passes_.push_back(std::move(pass));
  }
  if (points == 0 || points % 2 != 0 || left != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a transform of ", points,
        " points; wanted twice a product of the factors 2, 4 and 5"));
  }
  for (size_t k = 0; k < fourier.bins(); ++k) {
    fourier.split_.emplace_back(Root(k, points));
  }
  return fourier;
}

void Fourier::Power(const double* samples, Scratch* scratch,
                    double* power) const {
  scratch->a.resize(points() * kLanes);
  scratch->b.resize(points() * kLanes);
  // double samples in pairs are complex points.
  const double* from = samples;
  double* to = scratch->a.data();
  for (const Pass& pass : passes_) {
    const auto run = pass.radix == 5   ? HWY_DYNAMIC_DISPATCH(RunPass5)
                     : pass.radix == 4 ? HWY_DYNAMIC_DISPATCH(RunPass4)
                                       : HWY_DYNAMIC_DISPATCH(RunPass2);
    run(from, to, pass.groups, pass.stride, pass.twiddles.data());
    from = to;
    to = to == scratch->a.data() ? scratch->b.data() : scratch->a.data();
  }
  HWY_DYNAMIC_DISPATCH(SplitPower)(from, half_, split_.data(), power);
}

}  // namespace ballast
#endif  // HWY_ONCE
