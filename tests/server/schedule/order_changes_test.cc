// order.mixture_changes, order.skips, batch.rampup and batch.changes, compared
// with a walk that draws one sample after the other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/split.h"
#include "server/config/topology.h"
#include "server/schedule/sample_order.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/step_plan.h"
#include "tests/server/schedule/changed_order.h"

namespace ballast {
namespace {

// Draws sample after sample, as the documentation defines the order.
class Walk {
 public:
  explicit Walk(const v1::Config& config)
      : config_(config), sizes_(*BatchSizes(config.batch())) {
    for (int s = 0; s < 3; ++s) {
      alone_.push_back(std::make_unique<SampleOrder>(
          std::vector<SampleOrder::Source>{{kNames[s], kSizes[s], 1}},
          config.order().seed(), true));
    }
  }

  std::vector<Step> Steps(uint64_t count) {
    std::vector<Step> steps;
    for (uint64_t step = 0; step < count; ++step) {
      for (const v1::Order::Skip& skip : config_.order().skips()) {
        if (skip.step() != step) continue;
        for (uint64_t s = 0; s < skip.steps(); ++s) {
          skipped += DrawStep(step + s).size();
        }
      }
      steps.push_back(DrawStep(step));
    }
    return steps;
  }

  uint64_t skipped = 0;
  std::vector<uint64_t> drawn = {0, 0, 0};

 private:
  std::vector<double> WeightsAt(uint64_t step) const {
    std::vector<double> weights;
    for (const auto& source : config_.sources()) {
      double weight = source.weight();
      for (const auto& change : config_.order().mixture_changes()) {
        const auto given = change.weights().find(source.name());
        if (change.step() <= step && given != change.weights().end()) {
          weight = given->second;
        }
      }
      weights.push_back(weight);
    }
    return weights;
  }

  Step DrawStep(uint64_t step) {
    const std::vector<double> weights = WeightsAt(step);
    if (weights != weights_) {
      weights_ = weights;
      mixture_ = std::make_unique<Mixture>(weights);
      place_ = 0;
    }
    Step samples;
    for (uint32_t i = SizeAt(sizes_, step).samples; i > 0; --i) {
      const uint32_t source = mixture_->At(place_++).source;
      samples.push_back(absl::StrCat(
          kNames[source], ":", alone_[source]->At(drawn[source]++).ordinal));
    }
    return samples;
  }

  const v1::Config config_;
  const std::vector<BatchSize> sizes_;
  std::vector<std::unique_ptr<SampleOrder>> alone_;
  std::vector<double> weights_;
  std::unique_ptr<Mixture> mixture_;
  uint64_t place_ = 0;
};

TEST(OrderChangesTest, EachStepIsThatOfTheWalk) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 150; ++round) {
    const v1::Config config = RandomConfig(&random);
    const auto scheduler = MakeChanged(config);
    Walk walk(config);
    const std::vector<Step> wanted = walk.Steps(kSteps);
    uint64_t samples = 0;
    for (uint64_t step = 0; step < kSteps; ++step) {
      ASSERT_EQ(SamplesOf(*scheduler, step), wanted[step])
          << "step " << step << "\n"
          << config.order().DebugString() << config.batch().DebugString();
      ASSERT_EQ(SamplesOfStep(scheduler->job(), step), wanted[step].size());
      ASSERT_EQ(SamplesBefore(scheduler->job(), step), samples);
      samples += wanted[step].size();
    }
    const auto mixture = *scheduler->MixtureBefore(kSteps);
    EXPECT_EQ(mixture.samples(), samples);
  }
}

// Over all positions, those that skips leave out among them.
TEST(OrderChangesTest, EverySampleComesOnceAnEpochOfItsSource) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 50; ++round) {
    const v1::Config config = RandomConfig(&random);
    std::vector<SampleOrder::Source> sources;
    for (int s = 0; s < 3; ++s) {
      sources.push_back({kNames[s], kSizes[s], config.sources(s).weight()});
    }
    const StepPlan plan = *PlanSteps(config, v1::SPLIT_TRAIN);
    const SampleOrder order(sources, plan.mixtures, 7, true);
    std::vector<uint64_t> drawn(3, 0);
    std::vector<std::set<uint64_t>> seen(3);
    std::vector<SampleOrder::Drawn> counted(3);
    for (uint64_t position = 0; position < 1500; ++position) {
      const SampleOrder::Sample sample = order.At(position);
      ASSERT_EQ(sample.epoch, drawn[sample.source] / kSizes[sample.source]);
      ASSERT_TRUE(seen[sample.source].insert(sample.ordinal).second);
      if (++drawn[sample.source] % kSizes[sample.source] == 0) {
        seen[sample.source].clear();
      }
    }
    order.AddDrawn(0, 700, &counted);
    order.AddDrawn(700, 1500, &counted);
    for (int s = 0; s < 3; ++s) EXPECT_EQ(counted[s].samples, drawn[s]);
    for (uint32_t epochs = 1; epochs <= 3; ++epochs) {
      uint64_t end = 0;
      while (order.At(end).epoch < epochs) ++end;
      EXPECT_EQ(order.GetEnd(epochs), end);
    }
  }
}

TEST(OrderChangesTest, OtherSplitsHaveNoChanges) {
  v1::Config config = Unchanged();
  config.mutable_sources(1)->set_split(v1::SPLIT_VALID);
  AddWeights(2, {{"new", 3}}, &config);
  const auto plain = MakeChanged(config);
  AddSkip(3, 2, &config);
  AddSize(4, 16, &config);
  const auto changed = MakeChanged(config);
  const Scheduler* const before = *plain->OfSplit(v1::SPLIT_VALID);
  const Scheduler* const after = *changed->OfSplit(v1::SPLIT_VALID);
  EXPECT_EQ(before->fingerprint().data_hash(),
            after->fingerprint().data_hash());
  EXPECT_TRUE(after->job().step_ranges().empty());
  for (uint64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(SamplesOf(*before, step), SamplesOf(*after, step));
  }
}

TEST(OrderChangesTest, TheDataEndWithTheLastWholeStep) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 40; ++round) {
    v1::Config config = RandomConfig(&random);
    config.mutable_order()->set_epochs(2);
    const auto scheduler = Scheduler::Create(config, Indexes());
    if (!scheduler.ok()) continue;  // the data end within the first step
    const uint64_t end = (*scheduler)->job().end_step();
    // The walk's first step with a sample of the third epoch.
    Walk walk(config);
    uint64_t wanted = 0;
    while (true) {
      Walk again(config);
      again.Steps(wanted + 1);
      bool ends = false;
      for (int s = 0; s < 3; ++s) ends |= again.drawn[s] > 2 * kSizes[s];
      if (ends) break;
      ++wanted;
    }
    EXPECT_EQ(end, wanted) << config.order().DebugString()
                           << config.batch().DebugString();
  }
}

TEST(OrderChangesTest, CountsWhatWasDrawnAndLeftOut) {
  v1::Config config = Unchanged();
  AddSkip(2, 3, &config);
  AddWeights(4, {{"new", 3}, {"docs", 0}}, &config);
  const auto scheduler = MakeChanged(config);
  // 16 samples at 2:1; 24 left out, the last 8 of them at 1:3; 16 at 2:1; 16 at
  // 1:3.
  const v1::GetMixtureResponse mixture = *scheduler->MixtureBefore(6);
  EXPECT_EQ(mixture.samples(), 48u);
  ASSERT_EQ(mixture.sources_size(), 3);
  uint64_t samples = 0, skipped = 0;
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(mixture.sources(s).name(), kNames[s]);
    EXPECT_EQ(mixture.sources(s).size(), kSizes[s]);
    samples += mixture.sources(s).samples();
    skipped += mixture.sources(s).skipped();
  }
  EXPECT_EQ(samples, 48u);
  EXPECT_EQ(skipped, 24u);
  EXPECT_EQ(mixture.sources(2).samples(), 12u);
  EXPECT_EQ(mixture.sources(2).skipped(), 6u);
  EXPECT_NEAR(mixture.sources(0).wanted_share(), 32. * 2 / 3 / 48, 1e-9);
  EXPECT_NEAR(mixture.sources(2).wanted_share(), 0.25, 1e-9);
  EXPECT_NEAR(mixture.sources(2).weight(), 0.75, 1e-9);
  EXPECT_EQ(scheduler->MixtureBefore(0)->samples(), 0u);
}

// The numbers of micro-batches follow the sizes, with packs of whole steps,
// too.
TEST(OrderChangesTest, MicroBatchesFollowTheSize) {
  v1::Config config = Unchanged();
  AddSize(3, 16, &config);
  for (const auto mode :
       {v1::Packing::MODE_SHARD, v1::Packing::MODE_SCHEDULED}) {
    config.mutable_packing()->set_mode(mode);
    config.mutable_packing()->set_align(1);
    config.mutable_packing()->set_virtual_pipeline_group(1);
    const auto scheduler = MakeChanged(config);
    for (uint64_t step = 0; step < 6; ++step) {
      EXPECT_EQ(SamplesOf(*scheduler, step).size(), step < 3 ? 8u : 16u);
    }
    if (mode == v1::Packing::MODE_SCHEDULED) continue;
    EXPECT_EQ(scheduler->Schedule(2)->micro_batches_size(), 2);
    EXPECT_EQ(scheduler->Schedule(3)->micro_batches_size(), 4);
  }
}

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Which checkpoints go on when order and batch change by step.

// `config` without the changes that alter no step before `step`.
v1::Config Without(v1::Config config, uint64_t step) {
  const v1::Config before = config;
  auto& order = *config.mutable_order();
  order.clear_mixture_changes();
  order.clear_skips();
  config.mutable_batch()->clear_changes();
  for (const auto& each : before.order().mixture_changes()) {
    if (AltersFrom(before.order(), each.step()) >= step) continue;
    *order.add_mixture_changes() = each;
  }
  for (const auto& each : before.order().skips()) {
    if (each.step() < step) *order.add_skips() = each;
  }
  for (const auto& each : before.batch().changes()) {
    if (AltersFrom(before.order(), each.step()) >= step) continue;
    *config.mutable_batch()->add_changes() = each;
  }
  return config;
}

TEST(OrderCheckpointTest, StepsBeforeAChangeAreThoseWithoutIt) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    const v1::Config config = RandomConfig(&random);
    const auto with = MakeChanged(config);
    const uint64_t step = 1 + random() % 28;
    const auto without = MakeChanged(Without(config, step));
    for (uint64_t s = 0; s < step; ++s) {
      ASSERT_EQ(SamplesOf(*with, s), SamplesOf(*without, s)) << s;
      ASSERT_EQ(*FirstPosition(with->job(), s),
                *FirstPosition(without->job(), s));
    }
    // A run may stop before the step under either, and go on under the other.
    for (uint64_t next = 0; next <= step; ++next) {
      const auto &a = with->fingerprint(), &b = without->fingerprint();
      EXPECT_TRUE(CheckSameData(a, b, "B", v1::SPLIT_TRAIN, next).ok()) << next;
      EXPECT_TRUE(CheckSameData(b, a, "A", v1::SPLIT_TRAIN, next).ok()) << next;
      // A checkpoint may hold the data hash alone.
      v1::Fingerprint hash;
      hash.set_data_hash(b.data_hash());
      EXPECT_TRUE(CheckSameData(hash, a, "A", v1::SPLIT_TRAIN, next).ok());
    }
  }
}

// Whatever two configurations differ in: a checkpoint that is accepted has
// trained on the samples that the servers have for its steps.
TEST(OrderCheckpointTest, AnAcceptedCheckpointGoesOnExactlyOnce) {
  std::mt19937_64 random(4);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    const v1::Config config = RandomConfig(&random);
    v1::Config edited = config;
    const v1::Config other = RandomConfig(&random);
    switch (random() % 4) {
      case 0:
        *edited.mutable_order()->mutable_mixture_changes() =
            other.order().mixture_changes();
        break;
      case 1:
        *edited.mutable_order()->mutable_skips() = other.order().skips();
        break;
      case 2:
        *edited.mutable_batch() = other.batch();
        break;
      default:
        edited = Without(config, random() % 28);
    }
    const auto before = MakeChanged(config), after = MakeChanged(edited);
    for (uint64_t next = 0; next < kSteps; ++next) {
      const absl::Status status =
          CheckSameData(before->fingerprint(), after->fingerprint(), "A",
                        v1::SPLIT_TRAIN, next);
      ++(status.ok() ? accepted : refused);
      if (!status.ok()) continue;
      for (uint64_t s = 0; s < next; ++s) {
        ASSERT_EQ(SamplesOf(*before, s), SamplesOf(*after, s))
            << s << " of " << next;
      }
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

TEST(OrderCheckpointTest, AChangeOfTrainedStepsIsRefusedWithWhatToDo) {
  const auto before = MakeChanged(Unchanged());
  v1::Config changed = Unchanged();
  AddWeights(10, {{"new", 3}}, &changed);
  const auto after = MakeChanged(changed);
  const auto check = [&](uint64_t next_step) {
    return CheckSameData(before->fingerprint(), after->fingerprint(),
                         "the servers", v1::SPLIT_TRAIN, next_step);
  };
  EXPECT_TRUE(check(10).ok()) << check(10);
  const absl::Status refused = check(11);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("from_step.0000000010.index.new is absent in the "
                              "checkpoint"),
                    HasSubstr("it alters steps from 10 on"),
                    HasSubstr("let changes begin at step 11 or later")));
}

TEST(OrderCheckpointTest, ServersWithDifferentChangesDiffer) {
  std::vector<v1::Config> configs = {Unchanged()};
  const auto add = [&](auto change) {
    configs.push_back(Unchanged());
    change(&configs.back());
  };
  add([](v1::Config* c) { AddWeights(5, {{"chat", 3}}, c); });
  add([](v1::Config* c) { AddWeights(5, {{"chat", 4}}, c); });
  add([](v1::Config* c) { AddWeights(6, {{"chat", 4}}, c); });
  add([](v1::Config* c) { AddSkip(5, 1, c); });
  add([](v1::Config* c) { AddSkip(5, 2, c); });
  add([](v1::Config* c) { AddSize(5, 16, c); });
  add([](v1::Config* c) { AddSize(5, 12, c); });
  add([](v1::Config* c) {
    c->mutable_batch()->mutable_rampup()->set_start(4);
    c->mutable_batch()->mutable_rampup()->set_increment(4);
    c->mutable_batch()->mutable_rampup()->set_samples(100);
  });
  std::set<std::string> hashes, data;
  for (const v1::Config& config : configs) {
    const v1::Fingerprint fingerprint = MakeChanged(config)->fingerprint();
    hashes.insert(fingerprint.hash());
    data.insert(fingerprint.data_hash());
  }
  EXPECT_EQ(hashes.size(), configs.size());
  EXPECT_EQ(data.size(), configs.size());
}

// A source that is added to the configuration, and first drawn later, does not
// touch the data before.
TEST(OrderCheckpointTest, AnAddedSourceCountsFromItsStepOn) {
  v1::Config two = Unchanged();
  two.mutable_sources()->RemoveLast();
  auto without = Scheduler::Create(two, {Indexes()[0], Indexes()[1]});
  ASSERT_TRUE(without.ok());
  v1::Config three = Unchanged();
  AddWeights(10, {{"new", 3}}, &three);
  const auto with = MakeChanged(three);
  EXPECT_NE(with->fingerprint().data_hash(),
            (*without)->fingerprint().data_hash());
  EXPECT_EQ(DataHashBefore(with->fingerprint(), 10),
            (*without)->fingerprint().data_hash());
  for (uint64_t step = 0; step < 10; ++step) {
    EXPECT_EQ(SamplesOf(*with, step), SamplesOf(**without, step));
  }
  std::set<std::string> drawn;
  for (uint64_t step = 10; step < 14; ++step) {
    for (const std::string& name : SamplesOf(*with, step)) {
      if (name[0] != 'n') continue;
      EXPECT_TRUE(drawn.insert(name).second || drawn.size() == kSizes[2]);
    }
  }
  EXPECT_EQ(drawn.size(), kSizes[2]);  // 3/6 of 32 samples are more than 11
}

// A running job takes a source although its weights have changed before.
TEST(OrderCheckpointTest, AnAddedSourceAltersNoEarlierChange) {
  v1::Config three = Unchanged();
  AddWeights(5, {{"docs", 4}}, &three);
  v1::Config two = three;
  two.mutable_sources()->RemoveLast();
  EXPECT_EQ(FirstAlteredStep(two, three), std::nullopt);
  AddWeights(10, {{"new", 3}}, &three);
  EXPECT_EQ(FirstAlteredStep(two, three), 10);
  AddWeights(7, {{"docs", 1}}, &two);
  EXPECT_EQ(FirstAlteredStep(two, three), 7);
}

// Releases before rule 2 gave a job another order where a source is not drawn
// and the weights of the others do not fit the table.
TEST(OrderCheckpointTest, TellsTheRuleOfRoundedWeights) {
  const auto steps_of_rule = [](const v1::Config& config) {
    std::vector<uint64_t> steps;
    const v1::Fingerprint fingerprint = MakeChanged(config)->fingerprint();
    for (const auto& entry : fingerprint.entries()) {
      if (!absl::EndsWith(entry.key(), ".order.mixture_rules")) continue;
      EXPECT_EQ(entry.value(), "2");
      steps.push_back(StepOfKey(entry.key()).value_or(0));
    }
    return steps;
  };
  const auto weighted = [](double docs, double chat) {
    v1::Config config = Unchanged();
    config.mutable_sources(0)->set_weight(docs);
    config.mutable_sources(1)->set_weight(chat);
    return config;
  };
  v1::Config exact = weighted(0.351273, 0.648727);  // a million entries fit
  AddWeights(10, {{"new", 1}}, &exact);
  EXPECT_THAT(steps_of_rule(exact), IsEmpty());
  // From the first step on that draws it: a checkpoint of a job without the
  // source goes on until then.
  v1::Config joins = weighted(0.351273, 0.748738);
  AddWeights(5, {{"docs", 0.351274}}, &joins);
  EXPECT_THAT(steps_of_rule(joins), IsEmpty());
  AddWeights(10, {{"new", 1}}, &joins);
  EXPECT_THAT(steps_of_rule(joins), ElementsAre(10));
  AddWeights(20, {{"docs", 0}}, &joins);
  EXPECT_THAT(steps_of_rule(joins), ElementsAre(10, 20));
}

}  // namespace

}  // namespace ballast
