#ifndef BALLAST_TRAINER_SHIM_BALLAST_RANK_LOST_REPORTS_H_
#define BALLAST_TRAINER_SHIM_BALLAST_RANK_LOST_REPORTS_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/mutex.h"

namespace ballast {

// Counts timings that no server took. They are only advice: losing one does not
// end a run. Thread-safe.
class LostReports {
 public:
  void Add(const absl::Status& why) {
    MutexLock lock(&mutex_);
    ++count_;
    last_ = why;
  }

  uint64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }

  // A line for people; empty if none was lost.
  std::string Warning() const {
    MutexLock lock(&mutex_);
    if (count_ == 0) return "";
    return absl::StrCat(count_, " timings were taken by no server; the last: ",
                        last_.message());
  }

 private:
  mutable Mutex mutex_;
  uint64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BALLAST_RANK_LOST_REPORTS_H_
