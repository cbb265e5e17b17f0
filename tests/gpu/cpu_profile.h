#ifndef BALLAST_TESTS_GPU_CPU_PROFILE_H_
#define BALLAST_TESTS_GPU_CPU_PROFILE_H_

#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ballast {

// What the threads of this process execute, by a timer of processor time: each
// millisecond of it notes an address. For benchmarks on machines without a
// profiler; one at a time, on x86-64.
class CpuProfile {
 public:
  static void Begin() {
    noted_ = 0;
    Set(1000);
  }
  static void End() { Set(0); }

  // Prints two JSON objects: the shares of libraries, and of the functions or
  // places of 64 bytes with the most.
  static void Print(const char* what) {
    const size_t count = std::min(noted_.load(), kMaxCount);
    std::map<std::string, size_t> modules, places;
    for (size_t i = 0; i < count; ++i) {
      Dl_info info = {};
      const bool known =
          dladdr(reinterpret_cast<void*>(addresses_[i]), &info) != 0;
      const char* path = known ? info.dli_fname : "?";
      const char* slash = std::strrchr(path, '/');
      const std::string module = slash == nullptr ? path : slash + 1;
      ++modules[module];
      char place[256];
      if (known && info.dli_sname != nullptr) {
        std::snprintf(place, sizeof(place), "%s:%s", module.c_str(),
                      info.dli_sname);
      } else {
        std::snprintf(
            place, sizeof(place), "%s+%zx", module.c_str(),
            (addresses_[i] - reinterpret_cast<uintptr_t>(info.dli_fbase)) >>
                6 << 6);
      }
      ++places[place];
    }
    PrintShares(what, "modules", modules, count);
    PrintShares(what, "places", places, count);
  }

 private:
  static constexpr size_t kMaxCount = 1 << 16;

  static void PrintShares(const char* what, const char* kind,
                          const std::map<std::string, size_t>& counts,
                          size_t all) {
    std::vector<std::pair<size_t, std::string>> sorted;
    for (const auto& [name, count] : counts) sorted.emplace_back(count, name);
    std::sort(sorted.rbegin(), sorted.rend());
    std::printf("{\"profile\": \"%s\", \"samples\": %zu, \"%s\": {", what, all,
                kind);
    for (size_t i = 0; i < std::min<size_t>(sorted.size(), 16); ++i) {
      std::printf("%s\"%s\": %.3f", i == 0 ? "" : ", ",
                  sorted[i].second.c_str(), 1.0 * sorted[i].first / all);
    }
    std::printf("}}\n");
  }

  static void Note(int, siginfo_t*, void* context) {
    const size_t at = noted_.fetch_add(1);
    if (at >= kMaxCount) return;
    addresses_[at] =
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  }

  static void Set(int microseconds) {
    struct sigaction action = {};
    action.sa_sigaction = Note;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    const itimerval every = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_PROF, &every, nullptr);
  }

  static inline uintptr_t addresses_[kMaxCount];
  static inline std::atomic<size_t> noted_{0};
};

}  // namespace ballast

#endif  // BALLAST_TESTS_GPU_CPU_PROFILE_H_
