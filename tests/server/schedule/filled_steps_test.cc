#include "server/schedule/filled_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "server/schedule/group_order.h"
#include "server/schedule/pack_schedule.h"
#include "server/schedule/step_plan.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/schedule/changed_order.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Lengths with a long tail: most are short, some 8192 tokens.
uint32_t LengthAt(uint64_t position) {
  const double u = static_cast<double>(Mix64(position) >> 11) * 0x1p-53;
  return static_cast<uint32_t>(std::min(8192.0, 64 / std::pow(1 - u, 0.9)));
}

absl::Status GetLengths(uint64_t first, absl::Span<uint32_t> lengths) {
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = LengthAt(first + i);
  return absl::OkStatus();
}

uint64_t TokensOf(uint64_t first, uint64_t end) {
  uint64_t tokens = 0;
  for (uint64_t at = first; at < end; ++at) tokens += LengthAt(at);
  return tokens;
}

TEST(TokenStepsTest, TenThousandStepsKeepTheirBound) {
  constexpr uint64_t kTokens = 65536;
  constexpr uint32_t kUnit = 8;
  const TokenSteps steps({.tokens = kTokens, .unit = kUnit}, GetLengths,
                         UINT64_MAX);
  uint64_t first = 0;
  uint64_t least = kTokens, single = 0;
  std::set<uint64_t> sizes;
  for (uint64_t n = 0; n < 10000; ++n) {
    const uint64_t end = *steps.Start(n + 1);
    ASSERT_EQ(*steps.Start(n), first);
    const uint64_t samples = end - first;
    ASSERT_GT(samples, 0u);
    ASSERT_EQ(samples % kUnit, 0u);
    const uint64_t tokens = TokensOf(first, end);
    if (samples > kUnit) {
      ASSERT_LE(tokens, kTokens) << n;
    } else {
      ++single;
    }
    // The next unit would have been too much.
    ASSERT_GT(tokens + TokensOf(end, end + kUnit), kTokens) << n;
    least = std::min(least, tokens);
    sizes.insert(samples);
    first = end;
  }
  // Stated in docs/plans.md: below `tokens` by less than a unit of the longest.
  EXPECT_GT(least, kTokens - kUnit * 8192);
  EXPECT_GT(sizes.size(), 20u);
  EXPECT_EQ(steps.CountEnded(first).value(), 10000u);
  EXPECT_EQ(steps.CountEnded(first - 1).value(), 9999u);
}

TEST(TokenStepsTest, AStepOfOneUnitMayExceedItsTokens) {
  const auto lengths = [](uint64_t first, absl::Span<uint32_t> out) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = (first + i) / 4 == 1 ? 90 : 9;
    return absl::OkStatus();
  };
  const TokenSteps steps({.tokens = 100, .unit = 4}, lengths, UINT64_MAX);
  // Units of 36, 360, 36, 36 and so on tokens.
  for (const uint64_t start : {0, 4, 8, 16, 24}) {
    EXPECT_EQ(*steps.Start(steps.CountEnded(start).value()), start);
  }
  EXPECT_EQ(*steps.Start(3), 16u);
}

TEST(TokenStepsTest, StepsOfPacksHaveThemExactly) {
  constexpr uint32_t kPacks = 16;
  constexpr uint32_t kAlign = 16;
  constexpr uint64_t kCapacity = 16384;
  const TokenSteps steps(
      {.packs = kPacks, .pack_tokens = kCapacity, .align = kAlign}, GetLengths,
      UINT64_MAX);
  for (uint64_t n = 0; n < 300; ++n) {
    std::vector<uint32_t> lengths;
    for (uint64_t at = *steps.Start(n); at < *steps.Start(n + 1); ++at) {
      lengths.push_back((LengthAt(at) + kAlign - 1) / kAlign * kAlign);
    }
    EXPECT_EQ(PackInOrder(lengths, {kCapacity, 1})->size(), kPacks);
    lengths.push_back((LengthAt(*steps.Start(n + 1)) + kAlign - 1) / kAlign *
                      kAlign);
    EXPECT_EQ(PackInOrder(lengths, {kCapacity, 1})->size(), kPacks + 1);
  }
}

TEST(TokenStepsTest, KnownStartsAreContinued) {
  const StepFill fill = {.tokens = 30000, .unit = 2};
  const TokenSteps whole(fill, GetLengths, UINT64_MAX);
  const uint64_t far = *whole.Start(5000);
  const std::vector<uint64_t> found = whole.known();
  const TokenSteps rest(fill, GetLengths, UINT64_MAX,
                        {found.begin(), found.begin() + 1234});
  EXPECT_EQ(*rest.Start(5000), far);
  const TokenSteps bounded(fill, GetLengths, 100000);
  EXPECT_EQ(bounded.Start(1000000).status().code(),
            absl::StatusCode::kOutOfRange);
}

// A rank whose step is known does not wait for one whose step must be found.
TEST(TokenStepsTest, KnownStartsAreAnsweredWhileOthersAreFound) {
  const TokenSteps* all = nullptr;
  bool asked = false;
  const TokenSteps steps(
      {.tokens = 4096, .unit = 1},
      [&](uint64_t first, absl::Span<uint32_t> lengths) {
        if (first > 0) {
          EXPECT_EQ(*all->Start(0), 0u);
          EXPECT_GT(all->CountEnded(first / 2).value(), 0u);
          asked = true;
        }
        return GetLengths(first, lengths);
      },
      UINT64_MAX);
  all = &steps;
  ASSERT_TRUE(steps.Start(100000).ok());
  EXPECT_TRUE(asked);
}

// A server answers others while somebody asks for a step that no training
// reaches.
TEST(TokenStepsTest, AStepFarAwayIsFoundInParts) {
  ManualClock clock;
  const TokenSteps steps(
      {.tokens = 1024, .unit = 1},
      [&](uint64_t, absl::Span<uint32_t> lengths) {
        clock.Advance(absl::Microseconds(10) * lengths.size());
        std::fill(lengths.begin(), lengths.end(), 1);
        return absl::OkStatus();
      },
      UINT64_MAX);
  steps.FindInParts(&clock);
  constexpr uint64_t kFar = 500;
  int parts = 0;
  absl::StatusOr<uint64_t> start = steps.Start(kFar);
  for (; !start.ok() && parts < 99; start = steps.Start(kFar)) {
    EXPECT_EQ(start.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(*steps.Start(10), 10240u);
    ++parts;
  }
  EXPECT_GE(parts, 3);  // 5 s
  EXPECT_EQ(*start, 1024 * kFar);
}

TEST(TokenStepsTest, StartsThatAreFoundLaterAreSaved) {
  const TokenSteps steps({.tokens = 4096, .unit = 1}, GetLengths, UINT64_MAX);
  ASSERT_TRUE(steps.Start(10).ok());
  std::vector<uint64_t> saved;
  int saves = 0;
  const auto save = [&](const std::vector<uint64_t>& starts) {
    saved = starts;
    ++saves;
  };
  steps.SaveFound(save, /*saved=*/0);
  EXPECT_EQ(saves, 1);
  EXPECT_EQ(saved, steps.known());
  const size_t first = saved.size();
  for (uint64_t n = 0; n < 8 * first; ++n) ASSERT_TRUE(steps.Start(n).ok());
  EXPECT_GT(saved.size(), 7 * first);
  // Each save has at least an eighth more.
  EXPECT_LT(saves, 1 + std::log(9.0) / std::log(1.125) + 1);
  EXPECT_TRUE(std::equal(saved.begin(), saved.end(), steps.known().begin()));
}

TEST(TokenStepsTest, StepsThatNothingFillsAreRefused) {
  const auto nothing = [](uint64_t, absl::Span<uint32_t> out) {
    std::fill(out.begin(), out.end(), 0);
    return absl::OkStatus();
  };
  const TokenSteps steps({.tokens = 100, .unit = 1}, nothing, UINT64_MAX);
  EXPECT_THAT(steps.Start(1).status().message(),
              HasSubstr("more than 16777216 samples"));
}

// Starts 0, 1, 3, 6, 10, …
class Triangles final : public StepStarts {
 public:
  absl::StatusOr<uint64_t> Start(uint64_t n) const override {
    return n * (n + 1) / 2;
  }
  absl::StatusOr<uint64_t> CountEnded(uint64_t position) const override {
    uint64_t n = 0;
    while ((n + 1) * (n + 2) / 2 <= position) ++n;
    return n;
  }
};

TEST(StepPositionsTest, SkipsLeaveOutTheDataOfSteps) {
  const StepPositions steps(v1::Job(), 0, std::make_shared<Triangles>(),
                            {{3, 2}, {5, 1}});
  // Steps 0 1 2 | 3 4 | 5 … take the data of 0 1 2 | 5 6 | 8 ….
  const uint64_t data[] = {0, 1, 2, 5, 6, 8, 9};
  uint64_t samples = 0;
  for (uint64_t step = 0; step < std::size(data); ++step) {
    const uint64_t n = data[step];
    EXPECT_EQ(*steps.First(step), n * (n + 1) / 2);
    EXPECT_EQ(steps.Of(step)->end, (n + 1) * (n + 2) / 2);
    uint64_t before = 0;
    const std::vector<PositionRange> ranges = *steps.Before(step);
    for (const PositionRange& range : ranges) {
      before += range.end - range.first;
    }
    EXPECT_EQ(before, samples) << step;
    samples += n + 1;
    for (uint64_t at = n * (n + 1) / 2; at < (n + 1) * (n + 2) / 2; ++at) {
      EXPECT_EQ(*steps.Find(at), std::optional<uint64_t>(step)) << at;
      EXPECT_EQ(*steps.CountEnded(at), step) << at;
    }
  }
  for (const uint64_t left_out : {6, 10, 14, 28}) {
    EXPECT_EQ(*steps.Find(left_out), std::nullopt) << left_out;
  }
  EXPECT_EQ(*steps.CountEnded(6), 3u);
  EXPECT_EQ(*steps.CountEnded(14), 3u);
}

v1::Config TokenConfig(uint32_t dp, uint32_t micro) {
  v1::Config config = Unchanged();
  for (auto& [name, module] : *config.mutable_topology()->mutable_modules()) {
    module.set_dp(dp);
  }
  config.mutable_topology()->clear_servers();
  config.mutable_batch()->set_global(micro);
  config.mutable_batch()->set_micro(micro);
  config.mutable_batch()->set_tokens(5000);
  return config;
}

uint64_t TokensOf(const v1::StepSchedule& schedule) {
  return schedule.totals().tokens();
}

TEST(TokenScheduleTest, StepsAreFilledAndResumeAtAnotherSize) {
  const auto two = MakeChanged(TokenConfig(2, 4));
  const auto four = MakeChanged(TokenConfig(4, 4));
  EXPECT_EQ(two->fingerprint().data_hash(), four->fingerprint().data_hash());
  EXPECT_NE(two->fingerprint().data_hash(),
            MakeChanged(TokenConfig(2, 8))->fingerprint().data_hash());
  ASSERT_EQ(two->job().step_ranges_size(), 1);
  EXPECT_EQ(two->job().step_ranges(0).samples(), 0u);
  std::set<uint64_t> sizes;
  uint64_t samples = 0;
  for (uint64_t step = 0; step < 3 * kSteps; ++step) {
    const v1::StepSchedule schedule = *two->Schedule(step);
    EXPECT_EQ(two->MixtureBefore(step)->samples(), samples);
    const Step names = SamplesOf(*two, step);
    EXPECT_EQ(names, SamplesOf(*four, step));
    EXPECT_EQ(names.size(), schedule.micro_batches_size() * kMicro);
    if (step < two->job().steps_per_epoch()) {
      EXPECT_LE(names.size(), two->job().global_batch());
    }
    EXPECT_LE(TokensOf(schedule), 5000u);
    sizes.insert(names.size());
    const uint64_t position = schedule.micro_batches(0).position(0);
    EXPECT_EQ(**two->GetStep(position), step);
    samples += names.size();
  }
  EXPECT_GT(sizes.size(), 1u);
}

TEST(TokenScheduleTest, EpochsEndWithTheLastWholeStep) {
  v1::Config config = TokenConfig(2, 4);
  config.mutable_order()->set_epochs(2);
  const auto scheduler = MakeChanged(config);
  const uint64_t end = scheduler->job().end_step();
  ASSERT_GT(end, scheduler->job().steps_per_epoch());
  std::map<std::string, int> seen;
  for (uint64_t step = 0; step < end; ++step) {
    for (const std::string& name : SamplesOf(*scheduler, step)) ++seen[name];
  }
  for (const auto& [name, times] : seen) EXPECT_LE(times, 2) << name;
  EXPECT_EQ(scheduler->Schedule(end).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(TokenScheduleTest, SkipsAndMixturesLeaveEarlierStepsAlone) {
  const auto plain = MakeChanged(TokenConfig(2, 4));
  v1::Config config = TokenConfig(2, 4);
  AddSkip(5, 3, &config);
  AddWeights(9, {{"new", 4}}, &config);
  const auto changed = MakeChanged(config);
  for (uint64_t step = 0; step < 5; ++step) {
    EXPECT_EQ(SamplesOf(*plain, step), SamplesOf(*changed, step)) << step;
  }
  for (uint64_t step = 5; step < 9; ++step) {
    EXPECT_EQ(SamplesOf(*plain, step + 3), SamplesOf(*changed, step)) << step;
  }
  std::string after;
  for (const std::string& name : SamplesOf(*changed, 9)) after += name + " ";
  EXPECT_THAT(after, HasSubstr("new:"));
}

// Steps of one micro-batch each are those of batch.global.
TEST(TokenScheduleTest, SkipsAndMixturesAreThoseOfOtherSteps) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    v1::Config config = TokenConfig(2, 4);
    *config.mutable_order() = RandomConfig(&random).order();
    config.mutable_batch()->set_tokens(1);
    const auto filled = MakeChanged(config);
    config.mutable_batch()->clear_tokens();
    const auto plain = MakeChanged(config);
    for (uint64_t step = 0; step < kSteps; ++step) {
      ASSERT_EQ(SamplesOf(*filled, step), SamplesOf(*plain, step))
          << "step " << step << "\n"
          << config.order().DebugString();
    }
  }
}

// Also on a server that has found the starts before.
TEST(TokenScheduleTest, AMixtureDoesNotAlterTheStepBeforeIt) {
  const auto plain = MakeChanged(TokenConfig(2, 4));
  for (uint64_t step = 1; step < 20; ++step) {
    v1::Config config = TokenConfig(2, 4);
    AddWeights(step, {{"new", 40}}, &config);
    std::vector<uint64_t> saved;
    SchedulerInputs inputs;
    inputs.load_starts = [&](const std::string&) { return saved; };
    inputs.save_starts = [&](const std::string&,
                             const std::vector<uint64_t>& starts) {
      saved = starts;
    };
    for (int starts = 0; starts < 2; ++starts) {
      const auto changed = *Scheduler::Create(config, Indexes(), inputs);
      EXPECT_EQ(SamplesOf(*changed, step - 1), SamplesOf(*plain, step - 1))
          << step << " " << starts;
      EXPECT_EQ(*changed->GetStep(
                    plain->Schedule(step)->micro_batches(0).position(0)),
                step);
    }
  }
}

// Earlier releases had another order there.
TEST(TokenScheduleTest, TellsTheRuleOfChanges) {
  for (const auto& [step, from] :
       std::map<uint64_t, uint64_t>{{4, 4}, {5, 5}, {7, 5}, {8, 8}}) {
    v1::Config config = TokenConfig(2, 4);
    AddSkip(5, 3, &config);
    AddWeights(step, {{"new", 4}}, &config);
    const v1::Fingerprint fingerprint = MakeChanged(config)->fingerprint();
    bool told = false;
    for (const auto& entry : fingerprint.entries()) {
      told |= entry.key() == FromStepKey(from, "order.fill_rules");
    }
    EXPECT_TRUE(told) << step;
  }
}

TEST(TokenScheduleTest, StartsAreSavedUnderTheData) {
  std::map<std::string, std::vector<uint64_t>> saved;
  SchedulerInputs inputs;
  inputs.load_starts = [&](const std::string& name) { return saved[name]; };
  inputs.save_starts = [&](const std::string& name,
                           const std::vector<uint64_t>& starts) {
    saved[name] = starts;
  };
  const v1::Config config = TokenConfig(2, 4);
  const auto first = *Scheduler::Create(config, Indexes(), inputs);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_GT(saved.begin()->second.size(), first->job().steps_per_epoch());
  // What was saved is taken: a start of it is moved.
  saved.begin()->second[1] += kMicro;
  const auto second = *Scheduler::Create(config, Indexes(), inputs);
  EXPECT_EQ(SamplesOf(*second, 0).size(), SamplesOf(*first, 0).size() + kMicro);
  EXPECT_EQ(SamplesOf(*second, 2), SamplesOf(*first, 2));
}

}  // namespace
}  // namespace ballast
