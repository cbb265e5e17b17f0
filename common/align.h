#ifndef BALLAST_COMMON_ALIGN_H_
#define BALLAST_COMMON_ALIGN_H_

#include <cstdint>

namespace ballast {

// The smallest multiple of `to` that is at least `n`. `to` must not be 0.
constexpr uint64_t AlignUp(uint64_t n, uint64_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace ballast

#endif  // BALLAST_COMMON_ALIGN_H_
