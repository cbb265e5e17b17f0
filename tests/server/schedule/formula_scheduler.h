#ifndef BALLAST_TESTS_SERVER_SCHEDULE_FORMULA_SCHEDULER_H_
#define BALLAST_TESTS_SERVER_SCHEDULE_FORMULA_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {

// 97 formula samples: no divisor in common with any batch size of the tests.
inline const FakeSourceIndex& Index() {
  static const FakeSourceIndex* index = new FakeSourceIndex(FormulaSamples(97));
  return *index;
}

// A scheduler over Index().
inline std::unique_ptr<Scheduler> Make(const v1::Config& config) {
  auto scheduler = Scheduler::Create(config, {&Index()});
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

inline v1::StepSchedule ScheduleOf(const v1::Config& config, uint64_t step) {
  auto schedule = Make(config)->Schedule(step);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *std::move(schedule);
}

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_SCHEDULE_FORMULA_SCHEDULER_H_
