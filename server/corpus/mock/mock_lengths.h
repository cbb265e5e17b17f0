#ifndef BALLAST_SERVER_CORPUS_MOCK_MOCK_LENGTHS_H_
#define BALLAST_SERVER_CORPUS_MOCK_MOCK_LENGTHS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The distribution of a mock source's lengths: `lengths` of `mode: lognormal`
// in the configuration.
struct LognormalLengths {
  uint32_t min = 1;  // tokens; lower draws are clipped to it
  uint32_t max = 1;  // tokens; higher draws are clipped to it
  // Mean before clipping, in tokens; clipping changes it.
  double mean = 1;
  double sigma = 0;  // deviation of the logarithm
};

// Errors: INVALID_ARGUMENT, naming the value outside its range: min and max 1
// to 2^24, min not above max; mean above 0, to 2^24; sigma 0 to 100.
absl::Status CheckLognormalLengths(const LognormalLengths& lengths);

// The lengths in `text`, the content of a file: whole numbers of 1 to 2^24, one
// per line or separated by commas. A first line without a number is a heading;
// empty lines are skipped. Pure. Errors: INVALID_ARGUMENT (anything else,
// naming the line; no number at all; over 2^28 numbers).
absl::StatusOr<std::vector<uint32_t>> ParseLengths(absl::string_view text);

// Draws the lengths of Megatron-LM's mock datasets, i.e.
//
//   numpy.random.seed(0)
//   numpy.clip(numpy.random.lognormal(ln(mean) - sigma^2 / 2, sigma, n),
//              min, max).astype(int)
//
// This is MT19937 seeded with 0, two 32-bit draws per double, and the polar
// Box-Muller method. The first n lengths are the same for every n. Pure;
// thread-compatible. A length whose exact value lies within an ulp of a whole
// number could differ under a C library whose `exp` and `log` round
// differently.
class MockLengths {
 public:
  // `lengths` must pass CheckLognormalLengths.
  explicit MockLengths(const LognormalLengths& lengths);

  // The next length, in [min, max] tokens.
  uint32_t Next();

 private:
  // Uniform in [0, 1), 53 bits.
  double NextUniform();
  // Normal, with mean 0 and deviation 1.
  double NextNormal();

  LognormalLengths lengths_;
  double mu_;
  std::mt19937 bits_{0};
  // Box-Muller draws two numbers at a time.
  bool has_second_ = false;
  double second_ = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_MOCK_MOCK_LENGTHS_H_
