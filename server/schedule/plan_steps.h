#ifndef BALLAST_SERVER_SCHEDULE_PLAN_STEPS_H_
#define BALLAST_SERVER_SCHEDULE_PLAN_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/config/model_images.h"
#include "server/corpus/index/source_index.h"
#include "server/schedule/ownership.h"
#include "server/schedule/plan_rows.h"
#include "server/schedule/step_positions.h"

namespace ballast {

// The rows of a plan file; null rows: there is none.
struct PlanData {
  std::shared_ptr<const PlanRows> rows;
  uint64_t first_position = 0;  // of the first row
};

// The starts of a plan's steps.
std::shared_ptr<const StepStarts> MakePlanStarts(PlanData plan);

// Samples of a plan's largest step.
uint64_t LargestStep(const PlanRows& plan);

// Puts the steps of a plan in place of those of `steps` from its first on: by
// their sizes if these are few and whole micro-batches, else as steps with
// sizes of their own.
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
