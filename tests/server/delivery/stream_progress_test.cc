#include "server/delivery/block_stream.h"

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using Action = StreamProgress::Action;
using ::testing::ElementsAre;
using ::testing::Pair;

using Ids = std::vector<std::pair<uint64_t, uint32_t>>;

// The number of micro-batches of each step.
using MicroBatches = std::function<uint32_t(uint64_t step)>;

MicroBatches Always(uint32_t micro_batches) {
  return [=](uint64_t) { return micro_batches; };
}

// Plans and begins everything that may begin now.
Ids BeginAll(StreamProgress* progress, const MicroBatches& micro_batches) {
  Ids begun;
  while (true) {
    const StreamProgress::Decision next = progress->Next();
    if (next.action == Action::kNothing) return begun;
    if (next.action == Action::kPlan) {
      progress->OnPlanned(10, micro_batches(next.block.step));
    } else {
      EXPECT_EQ(next.bytes, 10u);
      begun.emplace_back(next.block.step, next.block.micro_batch);
      progress->OnBegun();
    }
  }
}

TEST(StreamProgressTest, BeginsTheWindowInOrderAndMovesItAsBlocksAreTaken) {
  StreamProgress progress({{5, 1}, 0}, 1);
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(5, 1), Pair(6, 0), Pair(6, 1)));
  progress.OnTaken();  // (5, 1): the next to be taken is of step 6
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(7, 0), Pair(7, 1)));
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, Always(2)), ElementsAre());
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(8, 0), Pair(8, 1)));
}

TEST(StreamProgressTest, NamesTheNextBlockToBegin) {
  StreamProgress progress({{5, 1}, 3}, 1);
  EXPECT_EQ(progress.to_begin(), (BlockId{5, 1}));
  EXPECT_TRUE(progress.goes_on());
  BeginAll(&progress, Always(2));
  EXPECT_EQ(progress.to_begin(), (BlockId{7, 0}));
  EXPECT_TRUE(progress.goes_on());
  progress.OnTaken();
  BeginAll(&progress, Always(2));
  EXPECT_EQ(progress.to_begin(), (BlockId{8, 0}));
  EXPECT_FALSE(progress.goes_on());  // the end

  StreamProgress stopped({{5, 1}, 3}, 1);
  stopped.Stop();
  EXPECT_FALSE(stopped.goes_on());
}

TEST(StreamProgressTest, WithoutPrefetchOneStepIsBuilt) {
  StreamProgress progress({{0, 0}, 0}, 0);
  EXPECT_THAT(BeginAll(&progress, Always(3)),
              ElementsAre(Pair(0, 0), Pair(0, 1), Pair(0, 2)));
}

TEST(StreamProgressTest, EndsAfterItsSteps) {
  StreamProgress progress({{5, 1}, 2}, 8);
  EXPECT_THAT(BeginAll(&progress, Always(2)),
              ElementsAre(Pair(5, 1), Pair(6, 0), Pair(6, 1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(progress.AllTaken());
    progress.OnTaken();
  }
  EXPECT_TRUE(progress.AllTaken());
}

// Steps 2, 3 and 4 have 3, 1 and 2 micro-batches.
TEST(StreamProgressTest, EveryStepHasItsOwnNumberOfMicroBatches) {
  const auto of_step = [](uint64_t step) {
    return std::vector<uint32_t>{3, 1, 2}[(step - 2) % 3];
  };
  StreamProgress progress({{2, 1}, 3}, 1);
  EXPECT_THAT(BeginAll(&progress, of_step),
              ElementsAre(Pair(2, 1), Pair(2, 2), Pair(3, 0)));
  progress.OnTaken();
  EXPECT_THAT(BeginAll(&progress, of_step), ElementsAre());
  progress.OnTaken();  // (2, 2): the next to be taken is of step 3
  EXPECT_THAT(BeginAll(&progress, of_step),
              ElementsAre(Pair(4, 0), Pair(4, 1)));
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(progress.AllTaken());
    progress.OnTaken();
    EXPECT_THAT(BeginAll(&progress, of_step), ElementsAre());
  }
  EXPECT_TRUE(progress.AllTaken());
}

TEST(StreamProgressTest, StepsPastTheLastNumberDoNotWrap) {
  constexpr uint64_t kMaxCount = std::numeric_limits<uint64_t>::max();
  StreamProgress progress({{kMaxCount - 1, 0}, 100}, 0);
  EXPECT_THAT(BeginAll(&progress, Always(1)),
              ElementsAre(Pair(kMaxCount - 1, 0)));
  EXPECT_FALSE(progress.AllTaken());
}

TEST(StreamProgressTest, PlansOneBlockAtATimeAndAsksUntilItIsBegun) {
  StreamProgress progress({{3, 0}, 0}, 1);
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  EXPECT_EQ(progress.Next().action, Action::kNothing);
  progress.OnPlanned(7, 2);
  for (int i = 0; i < 2; ++i) {
    const StreamProgress::Decision begin = progress.Next();
    EXPECT_EQ(begin.action, Action::kBegin);
    EXPECT_EQ(begin.distance, 0u);
    EXPECT_EQ(begin.bytes, 7u);
  }
  progress.OnBegun();
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  progress.OnPlanned(1, 2);
  EXPECT_EQ(progress.Next().distance, 1u);
}

TEST(StreamProgressTest, DoesNothingOnceStopped) {
  StreamProgress progress({{0, 0}, 0}, 1);
  EXPECT_EQ(progress.Next().action, Action::kPlan);
  progress.OnPlanned(1, 1);
  progress.Stop();
  EXPECT_EQ(progress.Next().action, Action::kNothing);
}

}  // namespace
}  // namespace ballast
