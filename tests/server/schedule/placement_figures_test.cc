#include "server/schedule/placement_figures.h"

#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

void AddModule(v1::Module module, const std::vector<double>& loads,
               v1::MicroBatchSchedule* out) {
  v1::ModuleSchedule& added = *out->add_modules();
  added.set_module(module);
  added.mutable_load_after()->Add(loads.begin(), loads.end());
}

TEST(PlacementFiguresTest, SumsMicroBatchesAndSteps) {
  v1::StepSchedule schedule;
  v1::MicroBatchSchedule& first = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {4, 2}, &first);
  AddModule(v1::MODULE_LANGUAGE, {1, 5}, &first);
  v1::MicroBatchSchedule& second = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {0, 0}, &second);
  AddModule(v1::MODULE_LANGUAGE, {3, 3}, &second);
  schedule.mutable_totals()->set_patches(40);
  auto& moved = *schedule.mutable_totals()->mutable_embeddings_moved();
  moved.set_tokens_within_servers(3);
  moved.set_tokens_between_servers(2);
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  AddStep(schedule, 4, &figures);
  EXPECT_EQ(figures.steps, 2);
  EXPECT_EQ(figures.micro_batches, 4);
  // A step: (4+2+1+5)/2 + 3; max(4+1, 2+5) + 3; 4+5 + 3.
  EXPECT_DOUBLE_EQ(figures.mean_time, 2 * 9);
  EXPECT_DOUBLE_EQ(figures.time_together, 2 * 10);
  EXPECT_DOUBLE_EQ(figures.time_by_module, 2 * 12);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_VISION), 4.0 / 3);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_LANGUAGE), 8.0 / 6);
  EXPECT_EQ(figures.image_tokens, 20);
  EXPECT_EQ(figures.tokens_within_servers, 6);
  EXPECT_EQ(figures.tokens_between_servers, 4);
}

TEST(PlacementFiguresTest, ModulesOfOtherSizesMeetAtTheirHeaviestRanks) {
  v1::StepSchedule schedule;
  v1::MicroBatchSchedule& only = *schedule.add_micro_batches();
  AddModule(v1::MODULE_VISION, {4, 2}, &only);
  AddModule(v1::MODULE_LANGUAGE, {6, 1, 1, 1}, &only);
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  EXPECT_DOUBLE_EQ(figures.time_together, 10);
  EXPECT_DOUBLE_EQ(figures.mean_time, 3 + 2.25);
}

TEST(PlacementFiguresTest, OneModuleHasNoLoadOfTheOther) {
  v1::StepSchedule schedule;
  AddModule(v1::MODULE_VISION, {1, 3}, schedule.add_micro_batches());
  PlacementFigures figures;
  AddStep(schedule, 4, &figures);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_VISION), 1.5);
  EXPECT_DOUBLE_EQ(figures.spread(v1::MODULE_LANGUAGE), 0);
  EXPECT_DOUBLE_EQ(figures.time_by_module, 3);
}

}  // namespace
}  // namespace ballast
