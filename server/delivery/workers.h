#ifndef BALLAST_SERVER_DELIVERY_WORKERS_H_
#define BALLAST_SERVER_DELIVERY_WORKERS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "server/delivery/work_queue.h"

namespace ballast {

// Whoever works off the work of a LoaderCore: the seam between what is to be
// done in which order and the threads (worker_pool.h) or the test that does it.
// Thread-safe. Nothing that is added runs before the call that adds it returns
// on the same thread.
class Workers {
 public:
  virtual ~Workers() = default;

  // As WorkQueue's. After Stop they do nothing: what is added is dropped.
  virtual void AddErrand(std::function<void()> errand) = 0;
  virtual void AddRun(uint64_t distance, std::shared_ptr<ItemRun> run) = 0;
  virtual bool RemoveIfUntouched(const ItemRun* run) = 0;

  struct Load {
    uint64_t errands = 0;  // that wait
    uint64_t items = 0;
    uint32_t threads = 0;
    uint32_t busy = 0;  // threads that work
  };
  // For those who look on: nothing depends on it.
  virtual Load load() const { return {}; }

  // Drops what has not begun and waits for what has. Not from a worker.
  virtual void Stop() = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_DELIVERY_WORKERS_H_
