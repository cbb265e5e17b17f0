#include "trainer_shim/jpeg_feed.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "tests/fakes/stepped_jpeg_engine.h"

namespace ballast {
namespace {

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

}  // namespace
}  // namespace ballast
