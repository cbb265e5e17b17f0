#ifndef BALLAST_SERVER_SCHEDULE_PLAN_STEPS_H_
#define BALLAST_SERVER_SCHEDULE_PLAN_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/model/model_images.h"
#include "server/sample/source_index.h"
#include "server/schedule/ownership.h"
#include "server/schedule/step_plan.h"

namespace ballast {

// A sample of a plan file, in the order of its step.
struct PlanRow {
  static constexpr uint32_t kNoPack = UINT32_MAX;

  uint64_t ordinal = 0;  // in the source's index
  uint32_t source = 0;   // in config.sources
  uint32_t pack = kNoPack;
  uint64_t epoch = 0;  // by which a recipe draws

  friend bool operator==(const PlanRow&, const PlanRow&) = default;
};

// The rows of a plan file (order.plan), numbered from 0 in their order, all of
// which have passed its checks (server/schedule/plan_file.h). Immutable;
// thread-safe.
class PlanRows {
 public:
  virtual ~PlanRows() = default;

  // The first step. Its steps are consecutive.
  virtual uint64_t first_step() const = 0;
  // The first row of each step, then the number of rows.
  virtual absl::Span<const uint64_t> starts() const = 0;
  // Whether every row of the step has a pack; else none has.
  virtual bool HasPacks(uint64_t step) const = 0;
  // 32 hexadecimal digits over steps, samples and packs.
  virtual const std::string& digest() const = 0;

  // Rows `first` to `first + count - 1`, which exist. Blocks on the disk.
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED (the file cannot be read now),
  // DATA_LOSS (it has changed since it was opened).
  virtual absl::StatusOr<std::vector<PlanRow>> Read(uint64_t first,
                                                    uint64_t count) const = 0;

  // How often each of config.sources occurs in the first `rows` rows. Blocks on
  // the disk. Errors: as Read.
  virtual absl::StatusOr<std::vector<uint64_t>> CountSources(
      uint64_t rows) const = 0;
};

// The rows of a plan file; null rows: no plan.
struct PlanData {
  std::shared_ptr<const PlanRows> rows;
  uint64_t first_position = 0;  // of the first row
};

// The starts of a plan's steps.
std::shared_ptr<const StepStarts> MakePlanStarts(PlanData plan);

// Samples of a plan's largest step.
uint64_t LargestStep(const PlanRows& plan);

// Puts the steps of a plan in place of the ones in `steps` from its first on:
// by their sizes if these are few and whole micro-batches, else as steps with
// separate sizes.
void AddPlanRanges(const PlanData& plan, uint32_t micro,
                   std::vector<v1::StepRange>* steps);

// Refuses settings that would alter steps that a plan gives. Errors:
// INVALID_ARGUMENT, naming the key.
absl::Status CheckBeforePlan(const v1::Config& config, const PlanRows& plan);

// Checks that every step of a plan can be divided into micro-batches or packs,
// and that packs hold their samples; for these it reads the lengths of all
// samples with packs. `packs` as MakePackShape returns it. Errors:
// INVALID_ARGUMENT, naming row and step; as PlanRows::Read and MeasureSample.
absl::Status CheckPlanSteps(const v1::Config& config, const PlanRows& plan,
                            const std::optional<PackShape>& packs,
                            const std::vector<const SourceIndex*>& indexes,
                            const ModelImages& images);

}  // namespace ballast

#endif  // BALLAST_SERVER_SCHEDULE_PLAN_STEPS_H_
