#ifndef BALLAST_COMMON_MACHINE_MEMORY_H_
#define BALLAST_COMMON_MACHINE_MEMORY_H_

#include <cstdint>
#include <string>

namespace ballast {

// The memory that this process may use, in bytes: the machine's, or the least
// limit of its memory cgroup (of either version) and those above it. 0 if
// unknown. Reads files of /proc and /sys below `root`.
uint64_t MachineMemory(const std::string& root = "");

}  // namespace ballast

#endif  // BALLAST_COMMON_MACHINE_MEMORY_H_
