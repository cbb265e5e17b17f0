#ifndef BALLAST_TRAINER_SHIM_DECODE_LINE_H_
#define BALLAST_TRAINER_SHIM_DECODE_LINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"

namespace ballast {

// Runs batches through two steps, each in its own thread: while a batch is
// completed, the next ones are fed. Batches take each step in the order in
// which they were begun. Begin, Finish and the destructor must be called from
// one thread.
class DecodeLine {
 public:
  // Batches that may be begun and not finished.
  static constexpr size_t kBatches = 3;

  // The work. `place` is below kBatches and is the batch's until it is
  // finished.
  class Steps {
   public:
    virtual ~Steps() = default;
    // Called once in each of the two threads before anything else. An error
    // becomes the error of every batch.
    virtual absl::Status Prepare() = 0;
    // Gives the batch to the engines. May wait for the files to arrive.
    virtual absl::Status Feed(size_t place) = 0;
    // Waits for the engines and enqueues what follows. Not called for a batch
    // whose Feed failed.
    virtual absl::Status Complete(size_t place) = 0;
  };

  // `steps` is not owned and outlives the line. Errors: as StartThread.
  static absl::StatusOr<std::unique_ptr<DecodeLine>> Create(Steps* steps);
  // Waits for the batches that are begun: both steps are taken.
  ~DecodeLine();
  DecodeLine(const DecodeLine&) = delete;
  DecodeLine& operator=(const DecodeLine&) = delete;

  // The place of the batch to be begun next, which must be set up before Begin.
  size_t next() const;
  // Begins a batch at next(). At most kBatches may be begun and not finished.
  // Never blocks.
  void Begin();

  // Blocks until both steps of the oldest batch that is not finished are taken,
  // and returns its error. OK at once if there is none.
  absl::Status Finish();

 private:
  explicit DecodeLine(Steps* steps) : steps_(steps) {}
  void Feed();
  void Complete();

  Steps* const steps_;
  mutable Mutex mutex_;
  CondVar changed_;
  // Numbers of batches that have reached each stage so far.
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t fed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status statuses_[kBatches] ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // that feed and complete
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_DECODE_LINE_H_
