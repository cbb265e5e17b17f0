#include "common/helper_pool.h"

#include <algorithm>
#include <utility>

namespace ballast {

HelperPool::HelperPool(Options options) : options_(std::move(options)) {}

std::unique_ptr<HelperPool::Worker> HelperPool::MakeWorker() const {
  auto worker = std::make_unique<Worker>();
  worker->helper =
      std::make_unique<HelperProcess>(options_.helper, options_.launch);
  return worker;
}

std::unique_ptr<HelperPool::Worker> HelperPool::TakeWorker() {
  if (idle_.empty()) {
    ++workers_;
    return MakeWorker();
  }
  std::unique_ptr<Worker> worker = std::move(idle_.back());
  idle_.pop_back();
  return worker;
}

absl::Status HelperPool::Start() {
  std::unique_ptr<Worker> worker;
  {
    MutexLock lock(&mutex_);
    if (workers_ > 0) return absl::OkStatus();
    worker = TakeWorker();
  }
  absl::Status started = worker->helper->Ask([] { return absl::OkStatus(); });
  MutexLock lock(&mutex_);
  idle_.push_back(std::move(worker));
  changed_.NotifyAll();
  return started;
}

void HelperPool::Run(absl::Span<Job* const> jobs) {
  const auto are_done = [&] {
    return std::all_of(jobs.begin(), jobs.end(),
                       [](const Job* job) { return job->is_done; });
  };
  mutex_.Lock();
  waiting_.insert(waiting_.end(), jobs.begin(), jobs.end());
  while (!are_done()) {
    if (waiting_.empty() || (idle_.empty() && workers_ >= options_.processes)) {
      changed_.Wait(&mutex_);
      continue;
    }
    std::vector<Job*> batch;
    for (size_t bytes = 0; !waiting_.empty() &&
                           batch.size() < options_.most_jobs &&
                           bytes < options_.most_bytes;) {
      batch.push_back(waiting_.front());
      bytes += batch.back()->bytes;
      waiting_.pop_front();
    }
    std::unique_ptr<Worker> worker = TakeWorker();
    mutex_.Unlock();
    Serve(worker.get(), batch);
    mutex_.Lock();
    for (Job* job : batch) job->is_done = true;
    idle_.push_back(std::move(worker));
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

void HelperPool::Serve(Worker* worker, absl::Span<Job* const> jobs) const {
  const absl::Status status = options_.ask(worker, jobs);
  if (status.ok()) return;
  const bool is_fault =
      options_.is_fault(status) ||
      worker->helper->last_end() == HelperEnd::kProcessorTime;
  if (is_fault && jobs.size() > 1) {
    for (Job* const& job : jobs) Serve(worker, absl::MakeConstSpan(&job, 1));
    return;
  }
  for (Job* job : jobs) job->status = status;
}

void HelperPool::Restart() {
  std::vector<std::unique_ptr<Worker>> ended;
  MutexLock lock(&mutex_);
  ended.swap(idle_);
  workers_ -= ended.size();
}

}  // namespace ballast
