#ifndef BALLAST_SERVER_PLAN_PACK_PLAN_H_
#define BALLAST_SERVER_PLAN_PACK_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/schedule/scheduler.h"

namespace ballast {

// Packs samples first-fit decreasing: the longest first, each into the first
// pack that has room. `lengths` are at most `capacity`. Returns the packs in
// the order of their first members, and members in ascending order. Pure; O(n
// log n).
std::vector<std::vector<uint32_t>> FirstFitDecreasing(
    absl::Span<const uint32_t> lengths, uint64_t capacity);

struct PackOptions {
  uint64_t tokens = 0;      // of a pack, samples padded as packing.align says
  uint32_t packs = 0;       // of a step
  uint32_t window = 65536;  // samples that are packed together
  // Steps whose samples are packed.
  uint64_t first_step = 0;
  uint64_t last_step = 0;
};

struct PackFigures {
  uint64_t samples = 0;
  uint64_t packs = 0;
  uint64_t steps = 0;
  uint64_t tokens = 0;    // without padding
  uint64_t left_out = 0;  // samples of packs that are less than a step

  // Share of the packs' tokens that are real.
  double fill(uint64_t capacity) const {
    return packs == 0 ? 0 : static_cast<double>(tokens) / packs / capacity;
  }
};

// Packs the samples of steps of train offline, in windows in the order of
// training, into a plan file of steps from 0 on. Packs that do not fill the
// last step are left out. Errors: INVALID_ARGUMENT (a sample longer than a
// pack; no whole step; options.packs is no multiple of the grid times
// packing.virtual_pipeline_group); as Scheduler::Schedule, PlanRowWriter.
absl::StatusOr<PackFigures> WritePacks(const v1::Config& config,
                                       const Scheduler& scheduler,
                                       const PackOptions& options,
                                       const std::string& path);

}  // namespace ballast

#endif  // BALLAST_SERVER_PLAN_PACK_PLAN_H_
