#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/no_threads.h"
#include "trainer_shim/host/host_image_decoder.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/jpeg_feed.h"

namespace ballast {
namespace {

// Holds engines back: each batch takes a permit, so that the test decides when
// it ends. Thread-safe.
class EngineGate {
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

// Decodes nothing. The first image's width names the batch; the bytes "bad" are
// damaged.
class SteppedJpegEngine final : public JpegEngine {
 public:
  explicit SteppedJpegEngine(EngineGate* gate) : gate_(gate) {}

  absl::Status Decode(absl::Span<const EncodedJpeg> images) override {
    gate_->Enter(images[0].form.width);
    counts_.by_hardware += images.size();
    counts_.bytes += 10 * images.size();
    if (images[0].bytes == "bad") return absl::InvalidArgumentError("bad");
    return absl::OkStatus();
  }
  JpegEngineCounts counts() const override { return counts_; }

 private:
  EngineGate* const gate_;
  JpegEngineCounts counts_;
};

inline std::vector<std::unique_ptr<JpegEngine>> SteppedEngines(
    int engines, EngineGate* gate) {
  std::vector<std::unique_ptr<JpegEngine>> stepped;
  for (int i = 0; i < engines; ++i) {
    stepped.push_back(std::make_unique<SteppedJpegEngine>(gate));
  }
  return stepped;
}

// A batch for stepped engines.
inline std::vector<EncodedJpeg> SteppedBatch(uint32_t name, size_t images,
                                             absl::string_view bytes = "good") {
  EncodedJpeg image;
  image.bytes = bytes;
  image.form = {name, 1, ChromaSampling::kGrey};
  return std::vector<EncodedJpeg>(images, image);
}

struct Image {
  uint32_t name = 0;
  uint64_t memory = 1;
  absl::string_view bytes = "good";
};

std::vector<Image> Batch(uint32_t first, size_t count) {
  std::vector<Image> images;
  for (uint32_t i = 0; i < count; ++i) images.push_back({first + i});
  return images;
}

using Chunk = std::vector<uint32_t>;  // names of its images

class JpegFeedTest : public ::testing::Test {
 protected:
  // Chunks of three images, or of `together` times as many. One engine, which
  // works on one chunk at a time, and so two slots.
  void Start(uint64_t memory = 1000, size_t together = 1) {
    chunks_ = std::make_unique<JpegChunks>(
        SteppedEngines(1, &gate_), [](size_t) { return absl::OkStatus(); });
    feed_ = std::make_unique<JpegFeed<Image>>(
        JpegFeed<Image>::Limits{
            .images = 3, .together = together, .memory = memory},
        chunks_.get(), [this](size_t, absl::Span<const Image> images) {
          return Fill(images);
        });
  }
  absl::StatusOr<absl::Span<const EncodedJpeg>> Fill(
      absl::Span<const Image> images) {
    Chunk chunk;
    jpegs_.clear();
    for (const Image& image : images) {
      if (image.bytes == "unfit") return absl::InternalError("unfit");
      chunk.push_back(image.name);
      jpegs_.push_back(SteppedBatch(image.name, 1, image.bytes)[0]);
    }
    MutexLock lock(&mutex_);
    filled_.push_back(chunk);
    return jpegs_;
  }
  std::vector<Chunk> filled() {
    MutexLock lock(&mutex_);
    return filled_;
  }
  uint64_t Begin(const std::vector<Image>& images) {
    const auto ticket = feed_->Begin(images);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? *ticket : 0;
  }

  EngineGate gate_;
  std::vector<EncodedJpeg> jpegs_;
  Mutex mutex_;
  std::vector<Chunk> filled_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<JpegChunks> chunks_;
  std::unique_ptr<JpegFeed<Image>> feed_;
};

TEST_F(JpegFeedTest, AChunkTakesImagesOfTwoBatches) {
  Start();
  gate_.Permit(100);
  EXPECT_EQ(Begin(Batch(1, 4)), 2u);  // its last image is in the second chunk
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2, 3}}));
  EXPECT_EQ(Begin(Batch(5, 4)), 3u);
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2, 3}, {4, 5, 6}}));
  EXPECT_TRUE(feed_->Finish(2).ok());
  // The first batch is done without the images that wait.
  EXPECT_EQ(filled().size(), 2u);
  EXPECT_TRUE(feed_->Finish(3).ok());
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2, 3}, {4, 5, 6}, {7, 8}}));
  EXPECT_EQ(chunks_->counts().by_hardware, 8u);
}

TEST_F(JpegFeedTest, ABatchThatEndsAChunkNeedsNoFurtherOne) {
  Start();
  gate_.Permit(100);
  EXPECT_EQ(Begin(Batch(1, 3)), 1u);
  EXPECT_TRUE(feed_->Finish(1).ok());
  EXPECT_EQ(Begin({}), 1u);
  EXPECT_TRUE(feed_->Finish(1).ok());
  EXPECT_EQ(Begin(Batch(4, 1)), 2u);
  EXPECT_TRUE(feed_->Finish(2).ok());
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2, 3}, {4}}));
}

// The rest of a batch follows while the engines still have its first chunk.
TEST_F(JpegFeedTest, TheEnginesNeverRestBeforeTheLastChunk) {
  Start();
  const uint64_t ticket = Begin(Batch(1, 4));
  std::thread finisher([&] { EXPECT_TRUE(feed_->Finish(ticket).ok()); });
  // No chunk has ended: the second is begun all the same.
  while (chunks_->begun() < 2) std::this_thread::yield();
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2, 3}, {4}}));
  gate_.Permit(2);
  finisher.join();
}

// Whichever thread comes first, no image is lost, comes twice or is overtaken.
TEST_F(JpegFeedTest, OneThreadBeginsWhileAnotherFinishes) {
  constexpr uint32_t kBatches = 300;
  Start();
  gate_.Permit(10000);
  Mutex mutex;
  CondVar changed;
  std::vector<uint64_t> tickets;  // of the batches begun
  std::vector<uint32_t> ends;     // images up to each
  std::thread feeder([&] {
    uint32_t begun = 0;
    for (uint32_t batch = 0; batch < kBatches; ++batch) {
      const uint32_t size = batch * 7 % 6;
      const uint64_t ticket = Begin(Batch(begun, size));
      begun += size;
      MutexLock lock(&mutex);
      tickets.push_back(ticket);
      ends.push_back(begun);
      changed.NotifyAll();
    }
  });
  for (uint32_t batch = 0; batch < kBatches; ++batch) {
    uint64_t ticket = 0;
    uint32_t end = 0;
    {
      MutexLock lock(&mutex);
      while (tickets.size() <= batch) changed.Wait(&mutex);
      ticket = tickets[batch];
      end = ends[batch];
    }
    ASSERT_TRUE(feed_->Finish(ticket).ok());
    size_t filled_images = 0;
    for (const Chunk& chunk : filled()) filled_images += chunk.size();
    ASSERT_GE(filled_images, end);
  }
  feeder.join();
  Chunk all;
  for (const Chunk& chunk : filled()) {
    EXPECT_LE(chunk.size(), 3u);
    all.insert(all.end(), chunk.begin(), chunk.end());
  }
  ASSERT_EQ(all.size(), ends.back());
  for (uint32_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
}

TEST_F(JpegFeedTest, AChunkKeepsWithinItsMemory) {
  Start(/*memory=*/10);
  gate_.Permit(100);
  // The third would exceed it; the last alone does.
  const uint64_t ticket = Begin({{1, 4}, {2, 6}, {3, 1}, {4, 11}, {5, 1}});
  EXPECT_TRUE(feed_->Finish(ticket).ok());
  EXPECT_EQ(filled(), (std::vector<Chunk>{{1, 2}, {3}, {4}, {5}}));
}

TEST_F(JpegFeedTest, LargeBatchesHaveLargerChunks) {
  Start(/*memory=*/1000, /*together=*/2);
  gate_.Permit(100);
  // 11 images are less than two chunks of 6.
  uint64_t ticket = Begin(Batch(1, 11));
  EXPECT_TRUE(feed_->Finish(ticket).ok());
  EXPECT_EQ(filled(),
            (std::vector<Chunk>{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11}}));
  ticket = Begin(Batch(12, 13));
  EXPECT_TRUE(feed_->Finish(ticket).ok());
  EXPECT_EQ(filled()[4], (Chunk{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(filled()[5], (Chunk{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(filled()[6], (Chunk{24}));
}

// The engines' time for 4 or 5 images would be that for 6.
TEST_F(JpegFeedTest, ALargerChunkIsAWholeNumberOfSmallerOnes) {
  Start(/*memory=*/10, /*together=*/2);
  gate_.Permit(100);
  std::vector<Image> images = Batch(1, 12);
  for (size_t i = 0; i < 3; ++i) images[i].memory = 2;
  const uint64_t ticket = Begin(images);
  EXPECT_TRUE(feed_->Finish(ticket).ok());
  EXPECT_EQ(filled(),
            (std::vector<Chunk>{{1, 2, 3}, {4, 5, 6, 7, 8, 9}, {10, 11, 12}}));
}

TEST_F(JpegFeedTest, ADamagedImageFailsEveryBatchFromItsChunkOn) {
  Start();
  gate_.Permit(100);
  const uint64_t first = Begin(Batch(1, 3));
  const uint64_t second = Begin({{4, 1, "bad"}});
  EXPECT_TRUE(feed_->Finish(first).ok());
  EXPECT_EQ(feed_->Finish(second).message(), "bad");
  EXPECT_EQ(feed_->Begin(Batch(5, 1)).status().message(), "bad");
  EXPECT_EQ(feed_->Finish(second).message(), "bad");
}

TEST_F(JpegFeedTest, AChunkThatCannotBeFilledFailsAll) {
  Start();
  gate_.Permit(100);
  EXPECT_EQ(feed_->Begin({{1}, {2, 1, "unfit"}, {3}}).status().message(),
            "unfit");
  EXPECT_EQ(feed_->Finish(1).message(), "unfit");
  EXPECT_EQ(feed_->Begin({}).status().message(), "unfit");
}

// Slots of chunks that were decoded, in order.
class Decoded {
 public:
  absl::Status Add(size_t slot) {
    MutexLock lock(&mutex_);
    slots_.push_back(slot);
    return slot == bad_ ? absl::InternalError("kernels") : absl::OkStatus();
  }
  std::vector<size_t> slots() const {
    MutexLock lock(&mutex_);
    return slots_;
  }
  size_t bad_ = 99;

 private:
  mutable Mutex mutex_;
  std::vector<size_t> slots_ ABSL_GUARDED_BY(mutex_);
};

class JpegChunksTest : public ::testing::Test {
 protected:
  std::unique_ptr<JpegChunks> Chunks(int engines) {
    return std::make_unique<JpegChunks>(
        SteppedEngines(engines, &gate_),
        [this](size_t slot) { return decoded_.Add(slot); });
  }
  // Begins a chunk in the slot that is expected.
  void Begin(JpegChunks* chunks, uint32_t name, size_t slot,
             absl::string_view bytes = "good") {
    const absl::StatusOr<size_t> reserved = chunks->Reserve();
    ASSERT_TRUE(reserved.ok()) << reserved.status();
    EXPECT_EQ(*reserved, slot);
    const absl::Status begun = chunks->Begin(SteppedBatch(name, 2, bytes));
    ASSERT_TRUE(begun.ok()) << begun;
  }

  EngineGate gate_;
  Decoded decoded_;
};

TEST_F(JpegChunksTest, SlotsAreTakenInTurnAndEndInOrder) {
  const auto chunks = Chunks(2);
  EXPECT_EQ(chunks->slots(), 4u);
  gate_.Permit(100);
  for (uint32_t chunk = 0; chunk < 10; ++chunk) {
    Begin(chunks.get(), chunk + 1, chunk % 4);
    EXPECT_EQ(chunks->begun(), chunk + 1);
  }
  EXPECT_TRUE(chunks->Finish(10).ok());
  EXPECT_EQ(decoded_.slots(),
            (std::vector<size_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(chunks->counts().by_hardware, 20u);
  // Again, and what was not begun: nothing to wait for.
  EXPECT_TRUE(chunks->Finish(4).ok());
}

TEST_F(JpegChunksTest, ReserveEndsTheOldestChunkOnly) {
  const auto chunks = Chunks(1);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  gate_.Permit(1);
  Begin(chunks.get(), 3, 0);
  EXPECT_EQ(decoded_.slots(), std::vector<size_t>{0});
  gate_.Permit(2);
  EXPECT_TRUE(chunks->Finish(3).ok());
}

// The engines get the next batch while the last one's chunks are waited for.
TEST_F(JpegChunksTest, BeginsWhileAnotherThreadFinishes) {
  const auto chunks = Chunks(2);
  Begin(chunks.get(), 1, 0);
  gate_.Taken(1);
  std::thread finisher([&] { EXPECT_TRUE(chunks->Finish(1).ok()); });
  // No permit so far: the first chunk cannot have ended.
  Begin(chunks.get(), 2, 1);
  EXPECT_EQ(gate_.Taken(2), (std::vector<uint32_t>{1, 2}));
  gate_.Permit(2);
  finisher.join();
  EXPECT_TRUE(chunks->Finish(2).ok());
  EXPECT_EQ(decoded_.slots(), (std::vector<size_t>{0, 1}));
}

// An engine takes the next chunk while the last one is resampled.
TEST_F(JpegChunksTest, EnginesWorkWhileAChunkIsCompleted) {
  JpegChunks chunks(SteppedEngines(1, &gate_), [this](size_t slot) {
    if (slot == 0) {
      EXPECT_EQ(gate_.Taken(2), (std::vector<uint32_t>{1, 2}));
    }
    return absl::OkStatus();
  });
  Begin(&chunks, 1, 0);
  Begin(&chunks, 2, 1);
  gate_.Permit(1);
  EXPECT_TRUE(chunks.Finish(1).ok());
  gate_.Permit(1);
  EXPECT_TRUE(chunks.Finish(2).ok());
}

TEST_F(JpegChunksTest, AFailureIsThatOfItsBatchAndFinal) {
  const auto chunks = Chunks(1);
  gate_.Permit(100);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1, "bad");
  EXPECT_TRUE(chunks->Finish(1).ok());
  EXPECT_EQ(chunks->Finish(2).message(), "bad");
  EXPECT_EQ(decoded_.slots(), std::vector<size_t>{0});
  EXPECT_EQ(chunks->Reserve().status().message(), "bad");
  EXPECT_EQ(chunks->Finish(1).message(), "bad");
  EXPECT_EQ(chunks->Fail(absl::InternalError("later")).message(), "bad");
}

TEST_F(JpegChunksTest, NoEngineWorksAfterAFailure) {
  const auto chunks = Chunks(2);
  Begin(chunks.get(), 1, 0, "bad");
  Begin(chunks.get(), 2, 1);
  Begin(chunks.get(), 3, 2);
  gate_.Permit(3);
  EXPECT_FALSE(chunks->Finish(1).ok());
  EXPECT_EQ(chunks->counts().by_hardware, 6u);
}

TEST_F(JpegChunksTest, WhatFollowsDecodingMayFail) {
  decoded_.bad_ = 1;
  const auto chunks = Chunks(1);
  gate_.Permit(100);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  EXPECT_EQ(chunks->Finish(2).message(), "kernels");
  EXPECT_EQ(decoded_.slots(), (std::vector<size_t>{0, 1}));
}

TEST_F(JpegChunksTest, AFailureOfTheThreadThatBeginsEndsTheOthersWait) {
  const auto chunks = Chunks(1);
  Begin(chunks.get(), 1, 0);
  Begin(chunks.get(), 2, 1);
  absl::Status finished;
  std::thread finisher([&] { finished = chunks->Finish(2); });
  gate_.Permit(2);
  const absl::Status failed = chunks->Fail(absl::InternalError("no memory"));
  finisher.join();
  EXPECT_EQ(failed.message(), "no memory");
  // Either both chunks had ended before, or the failure came first.
  if (!finished.ok()) {
    EXPECT_EQ(finished.message(), "no memory");
  }
  EXPECT_EQ(chunks->Finish(2).message(), "no memory");
}

// With the CPU's engines, one thread beginning and one finishing: the planes
// are those of one engine alone.
TEST_F(JpegChunksTest, DecodesOnTheCpuInTwoThreads) {
  const std::vector<MadeJpeg> all = HardJpegs();
  const std::vector<MadeJpeg> made(all.begin(), all.begin() + 40);
  std::vector<std::string> files;
  std::vector<std::vector<uint8_t>> want;
  CpuJpegEngine alone;
  for (const MadeJpeg& picture : made) {
    files.push_back(MakeJpeg(picture));
    const PlaneForm form = {picture.width, picture.height, picture.sampling};
    want.emplace_back(LayOutPlanes(form).bytes);
    ASSERT_TRUE(alone.DecodeOne({files.back(), form, want.back().data()}).ok());
  }
  std::vector<std::unique_ptr<JpegEngine>> engines;
  engines.push_back(std::make_unique<CpuJpegEngine>());
  engines.push_back(std::make_unique<CpuJpegEngine>());
  std::vector<std::vector<uint8_t>> slots(4);
  std::vector<size_t> file_of(4);
  size_t equal = 0;
  JpegChunks chunks(std::move(engines), [&](size_t slot) {
    equal += slots[slot] == want[file_of[slot]];
    return absl::OkStatus();
  });
  for (size_t i = 0; i < made.size(); ++i) {
    std::thread finisher;
    const absl::StatusOr<size_t> slot = chunks.Reserve();
    ASSERT_TRUE(slot.ok());
    if (i > 0) {
      finisher = std::thread([&] { EXPECT_TRUE(chunks.Finish(i).ok()); });
    }
    const PlaneForm form = {made[i].width, made[i].height, made[i].sampling};
    slots[*slot].assign(LayOutPlanes(form).bytes, 0);
    file_of[*slot] = i;
    const EncodedJpeg jpeg = {files[i], form, slots[*slot].data()};
    EXPECT_TRUE(chunks.Begin({&jpeg, 1}).ok());
    if (finisher.joinable()) finisher.join();
  }
  ASSERT_TRUE(chunks.Finish(made.size()).ok());
  EXPECT_EQ(equal, made.size());
  EXPECT_EQ(chunks.counts().by_host, made.size());
}

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

TEST(JpegEngineQueueTest, AProcessAtItsLimitOfThreadsIsAnError) {
  EngineGate gate;
  const NoThreads limit;
  const auto queue = QueueOf(2, &gate);
  const absl::Status status = queue->Begin(SteppedBatch(1, 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("no thread to decode JPEGs"));
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
