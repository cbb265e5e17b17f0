#ifndef BALLAST_COMMON_CORES_H_
#define BALLAST_COMMON_CORES_H_

#include <algorithm>
#include <cstdint>
#include <thread>

namespace ballast {

// Threads that the machine runs at once; 1 where it does not say.
inline uint32_t Cores() {
  return std::max(1u, std::thread::hardware_concurrency());
}

// The threads that a setting asks for: 0 means one a core.
inline uint32_t ThreadsOrCores(uint32_t threads) {
  return threads > 0 ? threads : Cores();
}

}  // namespace ballast

#endif  // BALLAST_COMMON_CORES_H_
