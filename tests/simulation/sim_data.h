#ifndef BALLAST_TESTS_SIMULATION_SIM_DATA_H_
#define BALLAST_TESTS_SIMULATION_SIM_DATA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/delivery/block.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// The job of a simulation: its schedule is a formula (synthetic_schedule.h),
// and so are its samples' bytes. Every eleventh sample has a data fault: all
// servers replace it by the same placeholder. Version 0 of the data is the
// job's; any other has the same samples with other bytes.

// Whether the sample at `position` has a data fault.
bool HasDataFault(uint64_t position);

// Fills the payload of a sample.
void FillPayload(int version, v1::Module module, uint64_t position,
                 absl::Span<uint8_t> payload);

// The schedules of `job`, under the fingerprint of `fingerprint_version`.
std::unique_ptr<Scheduler> MakeSimScheduler(const SyntheticJob& job,
                                            int fingerprint_version);

// The condition of a server's disk, which faults change.
struct SimDisk {
  double error_chance = 0;  // of a sample's read and of a write
  int full = 0;             // above 0: every write fails
  absl::Time stalled_until = absl::InfinitePast();
  absl::Duration most_read_time = absl::Milliseconds(5);
};

struct SimBuilderOptions {
  int version = 0;
  // A defect that a test plants: transient faults become placeholders.
  bool errors_become_placeholders = false;
};

// `disk` outlives the builder.
std::unique_ptr<SampleBuilder> MakeSimBuilder(const SimBuilderOptions& options,
                                              const SimDisk* disk);

// A rank's batch as a run without faults makes it.
struct ExpectedBatch {
  std::vector<uint64_t> positions;  // in order of place
  std::vector<bool> placeholders;
  std::string digest;
};

// The batch of a version of the data for micro-batch number `micro_batch` of
// `step`, from pure functions alone: the block under `direct`, packed without
// an exchange. Kept, since all runs of a job have the same.
const ExpectedBatch& ExpectedBatchOf(const SyntheticJob& job,
                                     const v1::Role& role, uint64_t step,
                                     uint32_t micro_batch, int version = 0);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_DATA_H_
