#ifndef BALLAST_TRAINER_SHIM_MICRO_BATCH_COUNTS_H_
#define BALLAST_TRAINER_SHIM_MICRO_BATCH_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/loader_client.h"
#include "client/schedule_source.h"
#include "common/mutex.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The number of micro-batches of any step: a trainer's pipeline schedule needs
// it before the step's first batch. Numbers of schedules that the rank has
// fetched for its batches are known; the servers are asked for others. All
// calls may be made from any thread.
class MicroBatchCounts {
 public:
  // Numbers that are kept.
  static constexpr size_t kKnownSteps = 64;

  // As ScheduleSource.
  MicroBatchCounts(absl::Span<LoaderClient* const> servers,
                   ScheduleSource::Options options)
      : schedules_(servers, std::move(options)) {}

  // Keeps the number of a schedule's micro-batches, for the last kKnownSteps
  // steps. Never waits for a Get.
  void Note(const v1::StepSchedule& schedule);

  // Blocks only for a step that is not known. Errors: as ScheduleSource::Get;
  // DATA_LOSS (a schedule without micro-batches).
  absl::StatusOr<uint32_t> Get(uint64_t step);

  // As ScheduleSource::Cancel.
  void Cancel() { schedules_.Cancel(); }

 private:
  // 0: not known.
  uint32_t Known(uint64_t step) const;

  Mutex asking_;              // held while a server is asked
  ScheduleSource schedules_;  // Get: only under asking_
  mutable Mutex mutex_;
  std::map<uint64_t, uint32_t> counts_ ABSL_GUARDED_BY(mutex_);  // by step
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_MICRO_BATCH_COUNTS_H_
