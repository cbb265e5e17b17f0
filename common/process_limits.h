#ifndef BALLAST_COMMON_PROCESS_LIMITS_H_
#define BALLAST_COMMON_PROCESS_LIMITS_H_

#include <sys/resource.h>

namespace ballast {

// Whether this program is built with AddressSanitizer or ThreadSanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(BALLAST_TSAN)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// For a program that parses untrusted bytes: from now on this process writes no
// core dump, and its address space has at most `bytes`.
inline void LimitMemory(rlim_t bytes) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // Sanitizers reserve terabytes of address space.
  if (kSanitized) return;
  const rlimit memory = {bytes, bytes};
  setrlimit(RLIMIT_AS, &memory);
}

}  // namespace ballast

#endif  // BALLAST_COMMON_PROCESS_LIMITS_H_
