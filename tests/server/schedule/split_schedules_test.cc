// Splits: which sources, orders, seeds and fingerprints each has.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/schedule/fingerprint.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/step_plan.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"
#include "tests/server/schedule/changed_order.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void AddSource(const std::string& name, v1::Split split, v1::Config* config) {
  v1::Source* source = config->add_sources();
  *source = config->sources(0);
  source->set_name(name);
  source->set_split(split);
}

// Indexes of 96, 40 and 24 samples, whose digests differ.
std::vector<const SourceIndex*> Indexes() {
  static const auto* const indexes = new std::vector<const SourceIndex*>{
      new FakeSourceIndex(FormulaSamples(96)),
      new FakeSourceIndex(FormulaSamples(40), std::string(32, '1')),
      new FakeSourceIndex(FormulaSamples(24), std::string(32, '2'))};
  return *indexes;
}

// docs (train), held_out (valid), quiz (test).
v1::Config ThreeSplits() {
  v1::Config config = JobConfig(2, 2, 8, 4);
  AddSource("held_out", v1::SPLIT_VALID, &config);
  AddSource("quiz", v1::SPLIT_TEST, &config);
  return config;
}

std::unique_ptr<Scheduler> Make(const v1::Config& config,
                                std::vector<const SourceIndex*> indexes) {
  auto scheduler = Scheduler::Create(config, indexes);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

TEST(SplitSourcesTest, EachSplitHasItsSources) {
  v1::Config config = ThreeSplits();
  AddSource("more", v1::SPLIT_TRAIN, &config);
  EXPECT_THAT(SourcesOfSplit(config, v1::SPLIT_TRAIN), ElementsAre(0, 3));
  EXPECT_THAT(SourcesOfSplit(config, v1::SPLIT_VALID), ElementsAre(1));
  EXPECT_THAT(SourcesOfSplit(config, v1::SPLIT_TEST), ElementsAre(2));
  EXPECT_THAT(GetSplits(config),
              ElementsAre(v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST));
  const v1::Config one = JobConfig(2, 2, 8, 4);
  EXPECT_THAT(GetSplits(one), ElementsAre(v1::SPLIT_TRAIN));
  EXPECT_THAT(SourcesOfSplit(one, v1::SPLIT_VALID), IsEmpty());
}

TEST(SplitSourcesTest, NoSeedsOfTwoSplitsAreEqual) {
  constexpr uint64_t kSeeds = 100'000;
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(SeedOfSplit(seed, v1::SPLIT_TRAIN), seed);
    for (const v1::Split split :
         {v1::SPLIT_TRAIN, v1::SPLIT_VALID, v1::SPLIT_TEST}) {
      seen.insert(SeedOfSplit(seed, split));
    }
  }
  EXPECT_EQ(seen.size(), 3 * kSeeds);
}

TEST(SplitSchedulesTest, EachSplitHasItsSamplesOnceAnEpoch) {
  const auto train = Make(ThreeSplits(), Indexes());
  const std::map<v1::Split, std::pair<std::string, uint64_t>> wanted = {
      {v1::SPLIT_TRAIN, {"docs", 96}},
      {v1::SPLIT_VALID, {"held_out", 40}},
      {v1::SPLIT_TEST, {"quiz", 24}}};
  for (const auto& [split, source] : wanted) {
    const auto& [name, size] = source;
    const Scheduler* const scheduler = *train->OfSplit(split);
    EXPECT_EQ(scheduler->job().split(), split);
    EXPECT_EQ(scheduler->job().steps_per_epoch(), size / 8);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<std::string> samples;
      for (uint64_t step = 0; step < size / 8; ++step) {
        const auto schedule = scheduler->Schedule(epoch * size / 8 + step);
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        EXPECT_EQ(schedule->split(), split);
        EXPECT_EQ(schedule->fingerprint(), train->fingerprint().hash());
        for (const std::string& sample :
             SamplesOf(*scheduler, epoch * size / 8 + step)) {
          samples.insert(sample);
        }
      }
      std::set<std::string> all;
      for (uint64_t i = 0; i < size; ++i)
        all.insert(absl::StrCat(name, ":", i));
      EXPECT_EQ(samples, all);
    }
  }
}

TEST(SplitSchedulesTest, OrdersOfEqualSourcesDifferBetweenSplits) {
  const auto train =
      Make(ThreeSplits(), {Indexes()[1], Indexes()[1], Indexes()[1]});
  const auto ordinals = [&](v1::Split split) {
    std::vector<std::string> samples =
        SamplesOf(**train->OfSplit(split), /*step=*/0);
    for (std::string& sample : samples) {
      sample = sample.substr(sample.find(':'));
    }
    return samples;
  };
  EXPECT_NE(ordinals(v1::SPLIT_TRAIN), ordinals(v1::SPLIT_VALID));
  EXPECT_NE(ordinals(v1::SPLIT_VALID), ordinals(v1::SPLIT_TEST));
}

// A run goes on with the samples that it would have had.
TEST(SplitSchedulesTest, AnotherSplitLeavesTrainAsItIs) {
  v1::Config before = JobConfig(2, 2, 8, 4);
  AddSource("more", v1::SPLIT_TRAIN, &before);
  v1::Config after = JobConfig(2, 2, 8, 4);
  AddSource("held_out", v1::SPLIT_VALID, &after);
  AddSource("more", v1::SPLIT_TRAIN, &after);
  const auto old_job = Make(before, {Indexes()[0], Indexes()[2]});
  const auto new_job = Make(after, Indexes());
  for (const uint64_t step : {0, 7, 100}) {
    EXPECT_EQ(SamplesOf(*old_job, step), SamplesOf(*new_job, step));
  }
  EXPECT_EQ(old_job->fingerprint().data_hash(),
            new_job->fingerprint().data_hash());
  EXPECT_NE(old_job->fingerprint().hash(), new_job->fingerprint().hash());
  const v1::Fingerprint& valid =
      (*new_job->OfSplit(v1::SPLIT_VALID))->fingerprint();
  EXPECT_EQ(valid.hash(), new_job->fingerprint().hash());
  EXPECT_NE(valid.data_hash(), new_job->fingerprint().data_hash());
}

TEST(SplitSchedulesTest, ASplitMayHaveSizesOfItsOwn) {
  const v1::Config one_size = ThreeSplits();
  v1::Config config = one_size;
  config.mutable_batch()->mutable_valid()->set_global(20);
  config.mutable_batch()->mutable_valid()->set_micro(10);
  const auto before = Make(one_size, Indexes());
  const auto train = Make(config, Indexes());
  const Scheduler* const valid = *train->OfSplit(v1::SPLIT_VALID);
  const Scheduler* const test = *train->OfSplit(v1::SPLIT_TEST);

  EXPECT_EQ(valid->job().global_batch(), 20u);
  EXPECT_EQ(valid->job().micro_batch(), 10u);
  EXPECT_EQ(valid->job().steps_per_epoch(), 40u / 20);
  EXPECT_EQ(valid->Schedule(3)->micro_batches_size(), 20 / 10);
  EXPECT_EQ(SamplesOf(*valid, 1).size(), 20u);
  // Two epochs of 40 samples are four steps, each sample once an epoch.
  std::set<std::string> epoch;
  for (const uint64_t step : {0, 1}) {
    for (const std::string& name : SamplesOf(*valid, step)) epoch.insert(name);
  }
  EXPECT_EQ(epoch.size(), 40u);
  // The others keep theirs, and train its order and data.
  EXPECT_EQ(test->job().global_batch(), 8u);
  EXPECT_EQ(test->job().micro_batch(), 4u);
  EXPECT_EQ(train->job().global_batch(), 8u);
  EXPECT_EQ(SamplesOf(*train, 5), SamplesOf(*before, 5));
  EXPECT_EQ(train->fingerprint().data_hash(),
            before->fingerprint().data_hash());
}

// Walks over the steps of a split until each of its `samples` samples has
// occurred, and notes where samples of each source begin to occur again.
v1::Job::Pass WalkOnePass(const Scheduler& scheduler, size_t samples,
                          int sources) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  v1::Job::Pass pass;
  pass.mutable_repeats_from()->Resize(sources, kNever);
  std::set<std::pair<uint32_t, uint64_t>> seen;
  // Some steps more, for sources that occur again only then.
  for (uint64_t step = 0; step < pass.end_step() + 40; ++step) {
    const auto schedule = scheduler.Schedule(step);
    for (const auto& part : schedule->micro_batches()) {
      for (int i = 0; i < part.position_size(); ++i) {
        const uint32_t source = part.source(i);
        if (seen.emplace(source, part.ordinal(i)).second) continue;
        pass.set_repeats_from(
            source, std::min(pass.repeats_from(source), part.position(i)));
      }
    }
    if (seen.size() == samples && pass.end_step() == 0) {
      pass.set_end_step(step + 1);
    }
  }
  return pass;
}

TEST(SplitSchedulesTest, OnePassHasEachSample) {
  struct Case {
    uint32_t global;
    std::vector<double> weights;  // of 40 and 24 samples
  };
  for (const Case& each : std::vector<Case>{{8, {1, 0}},
                                            {20, {1, 0}},
                                            {12, {1, 0}},
                                            {48, {1, 0}},
                                            {12, {1, 1}},
                                            {8, {5, 3}},
                                            {12, {0.3, 2}}}) {
    v1::Config config = JobConfig(2, 2, 8, 4);
    for (int i = 0; i < 2; ++i) {
      AddSource(absl::StrCat("held_out_", i), v1::SPLIT_VALID, &config);
      config.mutable_sources(i + 1)->set_weight(each.weights[i]);
    }
    config.mutable_batch()->mutable_valid()->set_global(each.global);
    config.mutable_batch()->mutable_valid()->set_micro(4);
    const auto train = Make(config, Indexes());
    EXPECT_FALSE(train->job().has_one_pass());
    const Scheduler* const valid = *train->OfSplit(v1::SPLIT_VALID);
    const v1::Job::Pass found = valid->job().one_pass();
    const size_t samples = each.weights[1] == 0 ? 40 : 64;
    const v1::Job::Pass wanted = WalkOnePass(*valid, samples, 3);
    EXPECT_EQ(found.end_step(), wanted.end_step()) << each.global;
    EXPECT_THAT(found.repeats_from(), ElementsAreArray(wanted.repeats_from()));
    if (samples == 40) {
      EXPECT_EQ(found.end_step(), (40 + each.global - 1) / each.global);
      EXPECT_EQ(found.repeats_from(1), 40u);
    }
  }
}

TEST(SplitSchedulesTest, ServersAgreeOnTheSizesOfASplit) {
  v1::Config config = ThreeSplits();
  config.mutable_batch()->mutable_valid()->set_global(20);
  config.mutable_batch()->mutable_valid()->set_micro(10);
  v1::Config other_micro = config;
  other_micro.mutable_batch()->mutable_valid()->set_micro(20);
  v1::Config other_global = config;
  other_global.mutable_batch()->mutable_valid()->set_global(40);
  const auto of = [](const v1::Config& each) {
    return (*Make(each, Indexes())->OfSplit(v1::SPLIT_VALID))->fingerprint();
  };
  const v1::Fingerprint a = of(config), b = of(other_micro),
                        c = of(other_global);
  EXPECT_EQ(a.hash(), Make(config, Indexes())->fingerprint().hash());
  EXPECT_THAT(DescribeDifference(a, "A", b, "B"),
              HasSubstr("splits.valid.batch.micro is 10 with A and 20 with B"));
  EXPECT_THAT(
      DescribeDifference(a, "A", c, "B"),
      HasSubstr("splits.valid.batch.global is 20 with A and 40 with B"));
  // A checkpoint resumes with other micro-batches, as in training.
  EXPECT_EQ(a.data_hash(), b.data_hash());
  EXPECT_NE(a.data_hash(), c.data_hash());
}

TEST(SplitSchedulesTest, EpochsEndOnlyTrain) {
  v1::Config config = ThreeSplits();
  config.mutable_order()->set_epochs(1);
  const auto train = Make(config, Indexes());
  EXPECT_EQ(train->job().end_step(), 96u / 8);
  const Scheduler* const valid = *train->OfSplit(v1::SPLIT_VALID);
  EXPECT_EQ(valid->job().end_step(), 0u);
  EXPECT_TRUE(valid->Schedule(1000).ok());
}

TEST(SplitSchedulesTest, CostChangesCountStepsOfTrain) {
  v1::Config config = ThreeSplits();
  v1::Balance::CostChange* change =
      config.mutable_balance()->add_cost_changes();
  change->set_step(3);
  change->mutable_cost()->mutable_vision()->set_linear(7);
  change->mutable_cost()->mutable_language();
  const auto train = Make(config, Indexes());
  const auto sum = [&](v1::Split split, uint64_t step) {
    double cost = 0;
    uint64_t patches = 0;
    const auto schedule = *(*train->OfSplit(split))->Schedule(step);
    for (const auto& micro_batch : schedule.micro_batches()) {
      for (const double x : micro_batch.modules(0).cost()) cost += x;
      patches += micro_batch.totals().patches();
    }
    return cost / patches;
  };
  EXPECT_EQ(sum(v1::SPLIT_TRAIN, 2), 1);
  EXPECT_EQ(sum(v1::SPLIT_TRAIN, 3), 7);
  EXPECT_EQ(sum(v1::SPLIT_VALID, 3), 1);
}

TEST(SplitSchedulesTest, ASplitWithoutSourcesIsRefused) {
  v1::Config config = JobConfig(2, 2, 8, 4);
  const auto train = Make(config, {Indexes()[0]});
  EXPECT_EQ(*train->OfSplit(v1::SPLIT_TRAIN), train.get());
  const absl::Status status = train->OfSplit(v1::SPLIT_VALID).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("`split: valid` (sources[].split); the job has train"));

  config.mutable_sources(0)->set_split(v1::SPLIT_VALID);
  const absl::Status no_train =
      Scheduler::Create(config, {Indexes()[0]}).status();
  EXPECT_EQ(no_train.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_train.message()), HasSubstr("`split: train`"));
}

}  // namespace
}  // namespace ballast
