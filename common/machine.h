#ifndef BALLAST_COMMON_MACHINE_H_
#define BALLAST_COMMON_MACHINE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

namespace ballast {

// The memory that this process may use, in bytes: the machine's, or the least
// limit of its memory cgroup (of either version) and the cgroups above it. 0 if
// unknown. Reads files of /proc and /sys below `root`.
uint64_t MachineMemory(const std::string& root = "");

// Number of threads that the machine runs at once; 1 if unknown.
inline uint32_t Cores() {
  return std::max(1u, std::thread::hardware_concurrency());
}

// Number of threads for a setting: 0 means one per core.
inline uint32_t ThreadsOrCores(uint32_t threads) {
  return threads > 0 ? threads : Cores();
}

// Raises the process's soft limit of file descriptors (RLIMIT_NOFILE) to its
// hard limit. Returns the limit then in force. Thread-safe.
uint64_t RaiseDescriptorLimit();

// Raises a lower hard limit to kWantedDescriptors, or to fs.nr_open if that is
// less, where the process may: root with CAP_SYS_RESOURCE, which containers
// usually lack. Elsewhere does nothing. Thread-safe.
inline constexpr uint64_t kWantedDescriptors = 65'536;
void RaiseHardDescriptorLimit();

}  // namespace ballast

#endif  // BALLAST_COMMON_MACHINE_H_
