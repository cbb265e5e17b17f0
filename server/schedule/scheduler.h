#ifndef BALLAST_SERVER_SCHEDULE_SCHEDULER_H_
#define BALLAST_SERVER_SCHEDULE_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

// Computes the schedule of any step. A pure function of what Create is given:
// no state changes afterwards, so it is thread-safe, and two schedulers made
// from equal configurations and indexes answer alike on every machine.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // `config` is a loaded one, but that model.tokenizer is the tokenizer's
  // digest in place of its path; `indexes[i]` belongs to config.sources(i), is
  // not owned and must outlive the scheduler. Errors: INVALID_ARGUMENT (an
  // empty source, packing.mode `scheduled` where it cannot be done, an
  // order.epochs that ends the data before the first step does).
  static absl::StatusOr<std::unique_ptr<Scheduler>> Create(
      const v1::Config& config, const std::vector<const SourceIndex*>& indexes);

  // Errors: OUT_OF_RANGE (the data end before the step, see job().end_step();
  // its positions do not fit 64 bits),
  // INVALID_ARGUMENT (an image that no grid fits; a sample too long for a
  // pack), DATA_LOSS (the index is damaged where one of the step's samples
  // lies). Blocks on the disk where nobody has looked there before.
  virtual absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const = 0;

  // What the schedules follow from.
  virtual const v1::Fingerprint& fingerprint() const = 0;

  // What clients must know to lay out batches.
  virtual const v1::Job& job() const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_SCHEDULER_H_
