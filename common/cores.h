#ifndef BALLAST_COMMON_CORES_H_
#define BALLAST_COMMON_CORES_H_

#include <algorithm>
#include <cstdint>
#include <thread>

namespace ballast {

// Number of threads that the machine runs at once; 1 if unknown.
inline uint32_t Cores() {
  return std::max(1u, std::thread::hardware_concurrency());
}

// Number of threads for a setting: 0 means one per core.
inline uint32_t ThreadsOrCores(uint32_t threads) {
  return threads > 0 ? threads : Cores();
}

}  // namespace ballast

#endif  // BALLAST_COMMON_CORES_H_
