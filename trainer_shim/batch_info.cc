#include "trainer_shim/batch_info.h"

#include <utility>

namespace ballast {

StepInfo StepInfoOf(v1::StepSchedule schedule, const SamplePadding& padding) {
  StepInfo step;
  for (const v1::MicroBatchSchedule& each : schedule.micro_batches()) {
    step.totals += SumTotals(each, padding);
  }
  step.schedule = std::make_shared<v1::StepSchedule>(std::move(schedule));
  return step;
}

}  // namespace ballast
