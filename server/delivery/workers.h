#ifndef BALLAST_SERVER_DELIVERY_WORKERS_H_
#define BALLAST_SERVER_DELIVERY_WORKERS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "server/delivery/work_queue.h"

namespace ballast {

// Executes Loader's work: a thread pool (worker_pool.h), or a test. The order
// of work is WorkQueue's. Thread-safe. Added work never runs on the calling
// thread before the call returns.
class Workers {
 public:
  virtual ~Workers() = default;

  // As WorkQueue. After Stop, added work is dropped.
  virtual void AddTask(std::function<void()> task) = 0;
  virtual void AddWatchTask(std::function<void()> task) = 0;
  virtual void AddItems(uint64_t distance,
                        std::shared_ptr<WorkItems> items) = 0;
  virtual bool RemoveIfUntouched(const WorkItems* items) = 0;

  struct Load {
    uint64_t tasks = 0;  // waiting
    uint64_t items = 0;  // waiting
    uint32_t threads = 0;
    uint32_t busy = 0;  // threads at work
  };
  // For statistics only.
  virtual Load load() const { return {}; }

  // Drops work that has not begun and waits for the rest. Must not be called
  // from a worker.
  virtual void Stop() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORKERS_H_
