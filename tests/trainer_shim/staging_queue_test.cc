#include "trainer_shim/staging_queue.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// A block in a server's memory, which is held as long as the block lives.
class FakeBlock : public FetchedBlock {
 public:
  FakeBlock(uint64_t step, std::shared_ptr<int> memory, bool intact)
      : step_(step), memory_(std::move(memory)), intact_(intact) {}
  uint64_t step() const override { return step_; }
  uint32_t micro_batch() const override { return 0; }
  absl::Span<const uint8_t> bytes() const override { return {}; }
  bool intact() const override { return intact_; }

 private:
  const uint64_t step_;
  const std::shared_ptr<int> memory_;
  const bool intact_;
};

// A batch whose device reads until it is told that it is done.
class FakeBatch : public StagedBlock {
 public:
  absl::StatusOr<bool> HasBeenRead() const override {
    MutexLock lock(&mutex_);
    return !reads_;
  }
  absl::Status AwaitRead() const override {
    MutexLock lock(&mutex_);
    while (reads_) changed_.Wait(&mutex_);
    return absl::OkStatus();
  }
  void SetReads(bool reads) {
    MutexLock lock(&mutex_);
    reads_ = reads;
    changed_.NotifyAll();
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool reads_ ABSL_GUARDED_BY(mutex_) = false;
};

class StagingQueueTest : public ::testing::Test {
 protected:
  StagingQueueTest() {
    for (FakeBatch& batch : batches_) queue_.Add(&batch);
  }

  // Stages the block of `step` and hands its batch to the consumer, whose
  // device begins to read.
  void Launch(uint64_t step, bool intact = true) {
    const auto taken = queue_.TakeFree();
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ((*taken)->block, nullptr);
    (*taken)->block = std::make_unique<FakeBlock>(step, memory_, intact);
    queue_.PutReady(*taken);
    const auto next = queue_.Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ((*next)->block->step(), step);
    static_cast<FakeBatch*>(*next)->SetReads(true);
    queue_.Return(*next);
  }
  // Blocks that hold the server's memory.
  long held() const { return memory_.use_count() - 1; }

  const std::shared_ptr<int> memory_ = std::make_shared<int>();
  FakeBatch batches_[4];
  StagingQueue queue_;
};

// Also if none is staged after it: at the end, or while no server answers.
TEST_F(StagingQueueTest, ABlockIsKeptUntilTheDeviceHasReadIt) {
  for (uint64_t step = 0; step < 4; ++step) Launch(step);
  queue_.DropRead();
  EXPECT_EQ(held(), 4);
  batches_[0].SetReads(false);
  batches_[1].SetReads(false);
  queue_.DropRead();
  EXPECT_EQ(held(), 2);
  batches_[2].SetReads(false);
  batches_[3].SetReads(false);
  queue_.DropRead();
  EXPECT_EQ(held(), 0);
}

TEST_F(StagingQueueTest, ReadyBatchesKeepTheirBlocks) {
  const auto taken = queue_.TakeFree();
  ASSERT_TRUE(taken.ok()) << taken.status();
  (*taken)->block = std::make_unique<FakeBlock>(0, memory_, true);
  queue_.PutReady(*taken);
  queue_.DropRead();
  EXPECT_EQ(held(), 1);
}

TEST_F(StagingQueueTest, ABatchIsReusedOnceTheDeviceHasReadItsBlock) {
  for (uint64_t step = 0; step < 4; ++step) Launch(step);
  std::thread stager([&] { Launch(4); });
  batches_[0].SetReads(false);
  stager.join();
  EXPECT_EQ(held(), 4);
}

TEST_F(StagingQueueTest, AnOverwrittenBlockIsTheErrorAfterTheReadyBatches) {
  Launch(0, /*intact=*/false);
  const auto taken = queue_.TakeFree();
  ASSERT_TRUE(taken.ok()) << taken.status();
  queue_.PutReady(*taken);
  batches_[0].SetReads(false);
  queue_.DropRead();
  EXPECT_TRUE(queue_.Next().ok());
  for (const absl::Status& end :
       {queue_.Next().status(), queue_.TakeFree().status()}) {
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
    EXPECT_THAT(end.message(), HasSubstr("step 0 micro-batch 0 was overwrit"));
  }
}

TEST_F(StagingQueueTest, TheLastBlocksAreCheckedBeforeTheEnd) {
  for (const bool looked : {false, true}) {
    StagingQueue queue;
    FakeBatch batch;
    queue.Add(&batch);
    ASSERT_TRUE(queue.TakeFree().ok());
    batch.block = std::make_unique<FakeBlock>(7, memory_, /*intact=*/false);
    queue.Return(&batch);
    queue.End(absl::OutOfRangeError("the end"));
    EXPECT_EQ(queue.Next().status().code(), absl::StatusCode::kOutOfRange);
    if (looked) queue.DropRead();
    const absl::Status rest = queue.DropRest();
    EXPECT_EQ(rest.code(), absl::StatusCode::kUnavailable) << rest;
    EXPECT_EQ(held(), 0);
  }
}

TEST_F(StagingQueueTest, CancelEndsBothSides) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue_.TakeFree().ok());
  std::vector<absl::Status> ends(2);
  std::thread stager([&] { ends[0] = queue_.TakeFree().status(); });
  std::thread consumer([&] { ends[1] = queue_.Next().status(); });
  queue_.Cancel();
  stager.join();
  consumer.join();
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kCancelled) << end;
  }
}

}  // namespace
}  // namespace ballast
