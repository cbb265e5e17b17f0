#ifndef BALLAST_SERVER_CORPUS_INDEX_PROGRESS_METER_H_
#define BALLAST_SERVER_CORPUS_INDEX_PROGRESS_METER_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "common/mutex.h"
#include "server/corpus/index/index_options.h"

namespace ballast {

// Sums the progress of the threads of a build. Thread-safe.
class ProgressMeter {
 public:
  ProgressMeter(uint64_t bytes_total,
                std::function<void(const IndexProgress&)> callback)
      : callback_(std::move(callback)) {
    progress_.bytes_total = bytes_total;
  }

  void Add(uint64_t bytes, uint64_t samples, uint64_t bad) {
    MutexLock lock(&mutex_);
    progress_.bytes_done += bytes;
    progress_.samples += samples;
    progress_.bad += bad;
    if (callback_) callback_(progress_);
  }

 private:
  const std::function<void(const IndexProgress&)> callback_;
  Mutex mutex_;
  IndexProgress progress_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_PROGRESS_METER_H_
