#ifndef BALLAST_SERVER_MEDIA_AUDIO_FOURIER_H_
#define BALLAST_SERVER_MEDIA_AUDIO_FOURIER_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace ballast {

// Discrete Fourier transforms of real numbers, several side by side: lane l of
// point i is at [i * kLanes + l], so that one instruction does the same for
// many. A lane's result does not depend on the others. Immutable; thread-safe.
class Fourier {
 public:
  static constexpr size_t kLanes = 8;

  // For `points` points: twice a product of 2, 4 and 5. Errors:
  // INVALID_ARGUMENT (another number).
  static absl::StatusOr<Fourier> Create(size_t points);

  size_t points() const { return 2 * half_; }
  size_t bins() const { return half_ + 1; }

  // Memory of a transform, kept by the caller.
  struct Scratch {
    std::vector<double> a;
    std::vector<double> b;
  };

  // The squared magnitudes of `bins` bins of `points` points, in lanes as
  // these.
  void Power(const double* samples, Scratch* scratch, double* power) const;

 private:
  // A pass: `radix` points `stride` transforms apart become one.
  struct Pass {
    size_t radix;
    size_t groups;  // of twiddled butterflies
    size_t stride;
    std::vector<std::complex<double>> twiddles;  // groups x (radix - 1)
  };

  Fourier() = default;

  size_t half_ = 0;  // complex points
  std::vector<Pass> passes_;
  std::vector<std::complex<double>> split_;  // exp(-2 pi i k / points)
};

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_AUDIO_FOURIER_H_
