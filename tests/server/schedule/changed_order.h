#ifndef BALLAST_TESTS_SERVER_SCHEDULE_CHANGED_ORDER_H_
#define BALLAST_TESTS_SERVER_SCHEDULE_CHANGED_ORDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

// Configurations whose order and batch change by step.

namespace ballast {

inline constexpr uint64_t kSteps = 30;
inline constexpr uint32_t kMicro = 4;
inline constexpr uint32_t kSizes[] = {23, 37, 11};
inline constexpr const char* kNames[] = {"docs", "chat", "new"};

inline std::vector<const SourceIndex*> Indexes() {
  static const auto* const indexes = new std::vector<const SourceIndex*>{
      new FakeSourceIndex(FormulaSamples(kSizes[0])),
      new FakeSourceIndex(FormulaSamples(kSizes[1]), std::string(32, '1')),
      new FakeSourceIndex(FormulaSamples(kSizes[2]), std::string(32, '2'))};
  return *indexes;
}

inline std::unique_ptr<Scheduler> MakeChanged(const v1::Config& config) {
  auto scheduler = Scheduler::Create(config, Indexes());
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

// docs and chat with weights, and `new`, which no step draws.
inline v1::Config Unchanged() {
  v1::Config config = JobConfig(2, 2, 8, kMicro);
  for (int i = 1; i < 3; ++i) *config.add_sources() = config.sources(0);
  for (int i = 0; i < 3; ++i) config.mutable_sources(i)->set_name(kNames[i]);
  config.mutable_sources(0)->set_weight(2);
  config.mutable_sources(2)->set_weight(0);
  return config;
}

inline void AddWeights(uint64_t step,
                       const std::map<std::string, double>& weights,
                       v1::Config* config) {
  auto* change = config->mutable_order()->add_mixture_changes();
  change->set_step(step);
  for (const auto& [name, weight] : weights) {
    (*change->mutable_weights())[name] = weight;
  }
}

inline void AddSkip(uint64_t step, uint64_t steps, v1::Config* config) {
  v1::Order::Skip* skip = config->mutable_order()->add_skips();
  skip->set_step(step);
  skip->set_steps(steps);
}

inline void AddSize(uint64_t step, uint32_t global, v1::Config* config) {
  auto* change = config->mutable_batch()->add_changes();
  change->set_step(step);
  change->set_global(global);
}

inline std::vector<uint64_t> AscendingSteps(std::mt19937_64* random) {
  std::set<uint64_t> steps;
  for (int i = (*random)() % 4; i > 0; --i) steps.insert(1 + (*random)() % 28);
  return {steps.begin(), steps.end()};
}

inline v1::Config RandomConfig(std::mt19937_64* random) {
  v1::Config config = Unchanged();
  for (const uint64_t step : AscendingSteps(random)) {
    AddWeights(step,
               {{kNames[(*random)() % 2], 1 + (*random)() % 4},
                {kNames[2], (*random)() % 3}},
               &config);
  }
  for (const uint64_t step : AscendingSteps(random)) {
    AddSkip(step, 1 + (*random)() % 7, &config);
  }
  if ((*random)() % 3 == 0) {
    config.mutable_batch()->set_global(20);
    config.mutable_batch()->mutable_rampup()->set_start(8);
    config.mutable_batch()->mutable_rampup()->set_increment(kMicro);
    config.mutable_batch()->mutable_rampup()->set_samples(1 +
                                                          (*random)() % 300);
  }
  for (const uint64_t step : AscendingSteps(random)) {
    AddSize(step, kMicro * (1 + (*random)() % 4), &config);
  }
  return config;
}

// "SOURCE:ORDINAL" of every sample of a step, in the order of the positions.
using Step = std::vector<std::string>;

inline Step SamplesOf(const Scheduler& scheduler, uint64_t step) {
  const auto schedule = scheduler.Schedule(step);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  std::map<uint64_t, std::string> samples;
  for (const auto& micro_batch : schedule->micro_batches()) {
    for (int i = 0; i < micro_batch.position_size(); ++i) {
      samples[micro_batch.position(i)] =
          absl::StrCat(schedule->sources(micro_batch.source(i)), ":",
                       micro_batch.ordinal(i));
    }
  }
  Step names;
  for (const auto& [position, name] : samples) names.push_back(name);
  return names;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_SCHEDULE_CHANGED_ORDER_H_
