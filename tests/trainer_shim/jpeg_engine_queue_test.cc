#include "trainer_shim/jpeg_feed.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/stepped_jpeg_engine.h"

namespace ballast {
namespace {

std::unique_ptr<JpegEngineQueue> QueueOf(int engines, EngineGate* gate) {
  return std::make_unique<JpegEngineQueue>(SteppedEngines(engines, gate));
}

TEST(JpegEngineQueueTest, TakesBatchesInOrderAndAnswersEachStatus) {
  EngineGate gate;
  const auto queue = QueueOf(1, &gate);
  const auto first = queue->Begin(SteppedBatch(1, 3));
  const auto second = queue->Begin(SteppedBatch(2, 1, "bad"));
  ASSERT_TRUE(first.ok() && second.ok());
  gate.Permit(2);
  EXPECT_EQ(queue->Wait(*second).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(queue->Wait(*first).ok());
  EXPECT_EQ(gate.Taken(2), (std::vector<uint32_t>{1, 2}));
  const JpegEngineCounts counts = queue->counts();
  EXPECT_EQ(counts.by_hardware, 4u);
  EXPECT_EQ(counts.bytes, 40u);
}

TEST(JpegEngineQueueTest, EnginesWorkAtTheSameTime) {
  EngineGate gate;
  const auto queue = QueueOf(2, &gate);
  const auto first = queue->Begin(SteppedBatch(1, 1));
  const auto second = queue->Begin(SteppedBatch(2, 1));
  ASSERT_TRUE(first.ok() && second.ok());
  // Neither may end before both are taken.
  gate.Taken(2);
  gate.Permit(2);
  EXPECT_TRUE(queue->Wait(*first).ok());
  EXPECT_TRUE(queue->Wait(*second).ok());
}

TEST(JpegEngineQueueTest, HoldsABoundedNumberOfBatches) {
  EngineGate gate;
  const auto queue = QueueOf(1, &gate);
  std::vector<JpegEngineQueue::Ticket> tickets;
  for (size_t i = 0; i < JpegEngineQueue::kBatchesOfEngine; ++i) {
    const auto ticket = queue->Begin(SteppedBatch(i + 1, 1));
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(queue->Begin(SteppedBatch(9, 1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  gate.Permit(100);
  EXPECT_TRUE(queue->Wait(tickets[0]).ok());
  const auto more = queue->Begin(SteppedBatch(9, 1));
  ASSERT_TRUE(more.ok());
  EXPECT_TRUE(queue->Wait(tickets[1]).ok());
  EXPECT_TRUE(queue->Wait(*more).ok());
}

TEST(JpegEngineQueueTest, RefusesATicketTwice) {
  EngineGate gate;
  gate.Permit(1);
  const auto queue = QueueOf(1, &gate);
  const auto ticket = queue->Begin(SteppedBatch(1, 1));
  ASSERT_TRUE(ticket.ok());
  EXPECT_TRUE(queue->Wait(*ticket).ok());
  EXPECT_EQ(queue->Wait(*ticket).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(queue->Wait(99).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(JpegEngineQueueTest, EndsWithBatchesLeft) {
  EngineGate gate;
  auto queue = QueueOf(1, &gate);
  ASSERT_TRUE(queue->Begin(SteppedBatch(1, 1)).ok());
  ASSERT_TRUE(queue->Begin(SteppedBatch(2, 1)).ok());
  gate.Taken(1);
  gate.Permit(2);
  queue.reset();
}

}  // namespace
}  // namespace ballast
