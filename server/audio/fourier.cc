#include "server/audio/fourier.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

std::complex<double> Root(size_t k, size_t n) {
  return std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k % n) /
                             static_cast<double>(n));
}

// Neighbouring lanes, which one instruction of every x86-64 and ARMv8 takes.
using Lanes = double __attribute__((vector_size(16)));
constexpr size_t kStep = sizeof(Lanes) / sizeof(double);

Lanes Load(const double* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

void Store(const Lanes& lanes, double* to) {
  std::memcpy(to, &lanes, sizeof(lanes));
}

struct Point {
  Lanes re;
  Lanes im;
  Point operator+(const Point& o) const { return {re + o.re, im + o.im}; }
  Point operator-(const Point& o) const { return {re - o.re, im - o.im}; }
  Point operator*(double f) const { return {re * f, im * f}; }
  Point Times(double c, double s) const {
    return {re * c - im * s, re * s + im * c};
  }
  Point TimesMinusI() const { return {im, -re}; }
};

void Transform(Point (&a)[2]) {
  const Point sum = a[0] + a[1];
  a[1] = a[0] - a[1];
  a[0] = sum;
}

void Transform(Point (&a)[4]) {
  const Point even = a[0] + a[2];
  const Point even_rest = a[0] - a[2];
  const Point odd = a[1] + a[3];
  const Point odd_rest = (a[1] - a[3]).TimesMinusI();
  a[0] = even + odd;
  a[1] = even_rest + odd_rest;
  a[2] = even - odd;
  a[3] = even_rest - odd_rest;
}

void Transform(Point (&a)[5]) {
  const double c1 = 0.30901699437494742410;  // cos(2 pi / 5)
  const double c2 = -0.80901699437494742410;
  const double s1 = 0.95105651629515357212;  // sin(2 pi / 5)
  const double s2 = 0.58778525229247312917;
  const Point p1 = a[1] + a[4];
  const Point p2 = a[2] + a[3];
  const Point m1 = (a[1] - a[4]).TimesMinusI();
  const Point m2 = (a[2] - a[3]).TimesMinusI();
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
void RunPass(const double* __restrict from, double* __restrict to,
             size_t groups, size_t stride,
             const std::complex<double>* twiddles) {
  constexpr size_t kLanes = Fourier::kLanes;
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
          a[k] = {Load(at), Load(at + kLanes)};
        }
        Transform(a);
        for (size_t k = 0; k < kRadix; ++k) {
          if (k > 0) a[k] = a[k].Times(w[k - 1].real(), w[k - 1].imag());
          double* at = out + k * stride * kRow + l;
          Store(a[k].re, at);
          Store(a[k].im, at + kLanes);
        }
      }
    }
  }
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
    const auto run = pass.radix == 5   ? RunPass<5>
                     : pass.radix == 4 ? RunPass<4>
                                       : RunPass<2>;
    run(from, to, pass.groups, pass.stride, pass.twiddles.data());
    from = to;
    to = to == scratch->a.data() ? scratch->b.data() : scratch->a.data();
  }
  for (size_t k = 0; k < bins(); ++k) {
    const double* z = from + k % half_ * 2 * kLanes;
    const double* mirrored = from + (half_ - k) % half_ * 2 * kLanes;
    const double c = split_[k].real();
    const double s = split_[k].imag();
    double* out = power + k * kLanes;
    for (size_t l = 0; l < kLanes; l += kStep) {
      const Point a = {Load(z + l), Load(z + kLanes + l)};
      const Point b = {Load(mirrored + l), -Load(mirrored + kLanes + l)};
      const Point x = ((a + b) + (a - b).TimesMinusI().Times(c, s)) * 0.5;
      Store(x.re * x.re + x.im * x.im, out + l);
    }
  }
}

}  // namespace ballast
