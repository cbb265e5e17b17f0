#ifndef BALLAST_COMMON_THREADS_H_
#define BALLAST_COMMON_THREADS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

// std::thread's constructor throws where it cannot create a thread, as in a
// container with a limit of processes. Nothing else here starts threads.

namespace ballast {

// Starts a thread that runs `work`, which is destroyed if no thread starts.
// `purpose` says what for: "ask the other servers". Errors: RESOURCE_EXHAUSTED
// (cannot create a thread).
template <typename Work>
absl::StatusOr<std::thread> StartThread(absl::string_view purpose,
                                        Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no thread to ", purpose, ": ", error.what(),
        "; raise the limit of processes (ulimit -u, the cgroup's pids.max)"));
  }
}

// Adds threads to `threads` until there are `wanted`; each runs `work` with its
// index there. Errors: as StartThread; threads that were added stay.
template <typename Work>
absl::Status AddThreads(absl::string_view purpose, size_t wanted,
                        const Work& work, std::vector<std::thread>* threads) {
  while (threads->size() < wanted) {
    BALLAST_ASSIGN_OR_RETURN(
        std::thread thread,
        StartThread(purpose, [work, i = threads->size()] { work(i); }));
    threads->push_back(std::move(thread));
  }
  return absl::OkStatus();
}

// Runs `work` for the numbers 0 to `count`, in order, on up to `threads`
// threads of which the caller's is one, until one fails. Fewer threads do the
// same where no more can be created. Blocks until all that began have ended.
// Every number before one that failed was run. Returns the error of the first
// number that has one.
inline absl::Status RunAll(size_t count, size_t threads,
                           absl::FunctionRef<absl::Status(size_t)> work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  // Each is written by one thread and read after all threads have ended.
  std::vector<absl::Status> results(count);
  const auto run = [&](size_t) {
    while (!failed) {
      const size_t i = next++;
      if (i >= count) return;
      results[i] = work(i);
      if (!results[i].ok()) failed = true;
    }
  };
  std::vector<std::thread> others;
  const size_t wanted = std::max<size_t>(std::min(threads, count), 1) - 1;
  AddThreads("help", wanted, run, &others).IgnoreError();
  run(wanted);
  for (std::thread& thread : others) thread.join();
  for (const absl::Status& result : results) BALLAST_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace ballast

#endif  // BALLAST_COMMON_THREADS_H_
