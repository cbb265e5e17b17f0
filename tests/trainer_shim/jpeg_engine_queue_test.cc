#include "trainer_shim/jpeg_engine_queue.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/mutex.h"

namespace ballast {
namespace {

// Decodes nothing; each batch takes a permit, so that the test decides when it
// ends. The first image's width names the batch.
class Gate {
 public:
  void Permit(int batches) {
    MutexLock lock(&mutex_);
    permits_ += batches;
    changed_.NotifyAll();
  }
  void Enter(uint32_t batch) {
    MutexLock lock(&mutex_);
    order_.push_back(batch);
    changed_.NotifyAll();
    while (permits_ == 0) changed_.Wait(&mutex_);
    --permits_;
  }
  // The batches that engines have taken, once there are `count`.
  std::vector<uint32_t> Taken(size_t count) {
    MutexLock lock(&mutex_);
    while (order_.size() < count) changed_.Wait(&mutex_);
    return order_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int permits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint32_t> order_ ABSL_GUARDED_BY(mutex_);
};

class FakeEngine final : public JpegEngine {
 public:
  explicit FakeEngine(Gate* gate) : gate_(gate) {}

  absl::Status Decode(absl::Span<const EncodedJpeg> images) override {
    gate_->Enter(images[0].form.width);
    counts_.by_hardware += images.size();
    counts_.bytes += 10 * images.size();
    if (images[0].bytes == "bad") return absl::InvalidArgumentError("bad");
    return absl::OkStatus();
  }
  JpegEngineCounts counts() const override { return counts_; }

 private:
  Gate* const gate_;
  JpegEngineCounts counts_;
};

std::unique_ptr<JpegEngineQueue> QueueOf(int engines, Gate* gate) {
  std::vector<std::unique_ptr<JpegEngine>> fakes;
  for (int i = 0; i < engines; ++i) {
    fakes.push_back(std::make_unique<FakeEngine>(gate));
  }
  return std::make_unique<JpegEngineQueue>(std::move(fakes));
}

std::vector<EncodedJpeg> Batch(uint32_t name, size_t images,
                               absl::string_view bytes = "good") {
  EncodedJpeg image;
  image.bytes = bytes;
  image.form = {name, 1, ChromaSampling::kGrey};
  return std::vector<EncodedJpeg>(images, image);
}

TEST(JpegEngineQueueTest, TakesBatchesInOrderAndAnswersEachStatus) {
  Gate gate;
  const auto queue = QueueOf(1, &gate);
  const auto first = queue->Begin(Batch(1, 3));
  const auto second = queue->Begin(Batch(2, 1, "bad"));
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
  Gate gate;
  const auto queue = QueueOf(2, &gate);
  const auto first = queue->Begin(Batch(1, 1));
  const auto second = queue->Begin(Batch(2, 1));
  ASSERT_TRUE(first.ok() && second.ok());
  // Neither may end before both are taken.
  gate.Taken(2);
  gate.Permit(2);
  EXPECT_TRUE(queue->Wait(*first).ok());
  EXPECT_TRUE(queue->Wait(*second).ok());
}

TEST(JpegEngineQueueTest, HoldsABoundedNumberOfBatches) {
  Gate gate;
  const auto queue = QueueOf(1, &gate);
  std::vector<JpegEngineQueue::Ticket> tickets;
  for (size_t i = 0; i < JpegEngineQueue::kBatchesOfEngine; ++i) {
    const auto ticket = queue->Begin(Batch(i + 1, 1));
    ASSERT_TRUE(ticket.ok());
    tickets.push_back(*ticket);
  }
  EXPECT_EQ(queue->Begin(Batch(9, 1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  gate.Permit(100);
  EXPECT_TRUE(queue->Wait(tickets[0]).ok());
  const auto more = queue->Begin(Batch(9, 1));
  ASSERT_TRUE(more.ok());
  EXPECT_TRUE(queue->Wait(tickets[1]).ok());
  EXPECT_TRUE(queue->Wait(*more).ok());
}

TEST(JpegEngineQueueTest, RefusesATicketTwice) {
  Gate gate;
  gate.Permit(1);
  const auto queue = QueueOf(1, &gate);
  const auto ticket = queue->Begin(Batch(1, 1));
  ASSERT_TRUE(ticket.ok());
  EXPECT_TRUE(queue->Wait(*ticket).ok());
  EXPECT_EQ(queue->Wait(*ticket).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(queue->Wait(99).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(JpegEngineQueueTest, EndsWithBatchesLeft) {
  Gate gate;
  auto queue = QueueOf(1, &gate);
  ASSERT_TRUE(queue->Begin(Batch(1, 1)).ok());
  ASSERT_TRUE(queue->Begin(Batch(2, 1)).ok());
  gate.Taken(1);
  gate.Permit(2);
  queue.reset();
}

}  // namespace
}  // namespace ballast
