#ifndef BALLAST_COMMON_RUN_ALL_H_
#define BALLAST_COMMON_RUN_ALL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/status_macros.h"

namespace ballast {

// Runs `work` for the numbers 0 to `count`, in order, on up to `threads`
// threads of which the caller's is one, until one fails. Blocks until all that
// began have ended. Every number before one that failed was run. Returns the
// error of the first number that has one.
inline absl::Status RunAll(size_t count, size_t threads,
                           absl::FunctionRef<absl::Status(size_t)> work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  // Each is written by one thread and read after all threads have ended.
  std::vector<absl::Status> results(count);
  const auto run = [&] {
    while (!failed) {
      const size_t i = next++;
      if (i >= count) return;
      results[i] = work(i);
      if (!results[i].ok()) failed = true;
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(threads, count); ++i) {
    others.emplace_back(run);
  }
  run();
  for (std::thread& thread : others) thread.join();
  for (const absl::Status& result : results) BALLAST_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace ballast

#endif  // BALLAST_COMMON_RUN_ALL_H_
