#ifndef BALLAST_TESTS_SIMULATION_SIM_HISTORY_H_
#define BALLAST_TESTS_SIMULATION_SIM_HISTORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

// A batch that a rank trained on.
struct TrainedBatch {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  std::vector<uint64_t> positions;  // in order of place
  std::vector<bool> placeholders;
  std::string digest;
};

// One rank in one start of the job.
struct RankHistory {
  v1::Role role;
  std::vector<TrainedBatch> batches;
  bool started = false;  // its shim was created
  absl::Status end;      // of its last call
  bool killed = false;   // from outside
};

// One start of the job.
struct RunHistory {
  uint64_t start_step = 0;
  std::vector<RankHistory> ranks;
  // Every rank must reach the end, since no fault could stop one.
  bool must_succeed = false;
};

// Whether the rank was refused at its start: its first server has other data.
inline bool WasRefused(const RankHistory& rank) {
  return !rank.started && absl::IsFailedPrecondition(rank.end);
}

// What a job promises about its ends.
struct HistoryPromises {
  SyntheticJob job;
  uint64_t steps = 0;
  // Servers with other data have been there, so a rank may say so and end.
  bool other_data = false;
  // The versions of the data, by the first step of each; 0 before them.
  std::map<uint64_t, int> versions;
};

// Holds all ranks, both modules and all starts of a job against the pure
// schedule and a run without faults. Returns each violation:
//   - a start trains on every micro-batch from its first on, in order: nothing
//     lost, repeated or reordered
//   - each batch has the samples, the places, the placeholders and the bytes of
//     the run without faults: nothing exchanged or silently replaced
//   - a start begins where all ranks of an earlier one had got to, or before
//   - a rank ends with OUT_OF_RANGE after the last step, or with a promised
//     status
//   - the last start ends after the last step on all ranks
//   - only FAILED_PRECONDITION at its start may stop a rank that no fault can:
//     its first server has other data then
std::vector<std::string> CheckHistory(const HistoryPromises& promises,
                                      const std::vector<RunHistory>& runs);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_HISTORY_H_
