#ifndef BALLAST_COMMON_HELPER_POOL_H_
#define BALLAST_COMMON_HELPER_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/helper_process.h"
#include "common/mutex.h"

namespace ballast {

// Equal helpers that the threads of a program share. A request holds the jobs
// of all threads that wait while the processes are busy. If a request is at
// fault, each of its jobs is asked alone: one job never costs another more than
// a second try. Thread-safe.
class HelperPool {
 public:
  // Input of one caller, and its answer: derived types have both.
  struct Job {
    size_t bytes = 0;     // of the input
    absl::Status status;  // after Run

   private:
    friend class HelperPool;
    bool is_done = false;
  };

  // A process, and buffers that are kept between its requests.
  struct Worker {
    std::unique_ptr<HelperProcess> helper;
    std::string request;
    std::string answer;
  };

  struct Options {
    HelperProcess::Options helper;
    HelperProcess::Launch launch;
    // Sends the jobs and fills in their answers, in HelperProcess::Ask. Its
    // error is every job's.
    std::function<absl::Status(Worker* worker, absl::Span<Job* const> jobs)>
        ask;
    // Whether an error of `ask` is the fault of a job.
    bool (*is_fault)(const absl::Status& status);
    // Most processes at a time; at least 1.
    size_t processes = 1;
    // A request ends with the job that reaches one of these.
    size_t most_jobs = 64;
    size_t most_bytes = size_t{1} << 20;
  };

  // Starts nothing yet.
  explicit HelperPool(Options options);

  // Starts a process, if none runs. Blocks. Errors: as HelperProcess::Ask.
  absl::Status Start();
  // Runs the jobs, with jobs of other threads. Blocks. Each job has its
  // status.
  void Run(absl::Span<Job* const> jobs);
  // Ends the processes that run nothing. The next jobs start new ones.
  void Restart();

 private:
  std::unique_ptr<Worker> MakeWorker() const;
  std::unique_ptr<Worker> TakeWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Serve(Worker* worker, absl::Span<Job* const> jobs) const;

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job*> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> idle_ ABSL_GUARDED_BY(mutex_);
  size_t workers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_HELPER_POOL_H_
