#ifndef BALLAST_TESTS_COMMON_HELPER_PROBE_H_
#define BALLAST_TESTS_COMMON_HELPER_PROBE_H_

#include <cstdint>

namespace ballast {

// The requests to helper_probe.cc, a helper that does what it is asked to, good
// and bad. Answers have the kind 0.
enum ProbeRequest : uint32_t {
  kEcho,    // -> the body
  kTry,     // the body names a deed -> its errno in digits, "0" if it is done
  kReadFd,  // with a descriptor -> its first bytes
  kGetVariable,  // the body names one -> its value
  kForkProbe,  // with a socket and a lifeline -> the process's number in digits
  kTrap,       // an illegal instruction
  kExit,       // with the status in digits
  kSpin,       // uses processor time until the limit of 1 s
  kWork,       // with a pipe: uses processor time until it has ended -> ""
  kTakeMemory,  // more than its limit, and exits accordingly
  kManyBytes,   // -> 1 MiB
};

// The limit of its memory.
inline constexpr uint64_t kProbeMemory = uint64_t{1} << 30;

}  // namespace ballast

#endif  // BALLAST_TESTS_COMMON_HELPER_PROBE_H_
