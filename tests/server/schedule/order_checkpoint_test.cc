// Which checkpoints go on when order and batch change by step.

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "proto/schedule/split.h"
#include "server/schedule/scheduler.h"
#include "server/schedule/step_plan.h"
#include "tests/server/schedule/changed_order.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace ballast
