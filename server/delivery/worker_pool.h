#ifndef BALLAST_SERVER_DELIVERY_WORKER_POOL_H_
#define BALLAST_SERVER_DELIVERY_WORKER_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "server/delivery/work_queue.h"
#include "server/delivery/workers.h"

namespace ballast {

// Threads that execute the work of a WorkQueue. The lock is held to add or take
// work, never while working. Thread-safe.
class WorkerPool final : public Workers {
 public:
  // `threads` of 0 means one per core. Errors: RESOURCE_EXHAUSTED (the system
  // refuses so many threads).
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(uint32_t threads);

  // Calls Stop().
  ~WorkerPool() override;

  void AddTask(std::function<void()> task) override;
  void AddWatchTask(std::function<void()> task) override;
  void AddItems(uint64_t distance, std::shared_ptr<WorkItems> items) override;
  bool RemoveIfUntouched(const WorkItems* items) override;
  void Stop() override;

  Load load() const override;

 private:
  WorkerPool() = default;
  void Work();

  mutable Mutex mutex_;
  CondVar changed_;
  WorkQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t busy_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t idle_ ABSL_GUARDED_BY(mutex_) = 0;  // waiting for work
  std::vector<std::thread> threads_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORKER_POOL_H_
