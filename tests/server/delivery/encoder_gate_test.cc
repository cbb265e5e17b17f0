#include "server/delivery/encoder_gate.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

// Progress of a stream: built up to (7, 1), begun up to (9, 0).
EncoderGate::Progress Progress() {
  EncoderGate::Progress vision;
  vision.first_unbuilt = {7, 1};
  vision.to_begin = {9, 0};
  vision.goes_on = true;
  return vision;
}

TEST(EncoderGateTest, LanguageAlwaysWaitsForVisionBlocksBeingBuilt) {
  EncoderGate::Progress vision = Progress();
  vision.goes_on = false;
  vision.looks_still = 100;
  EXPECT_FALSE(EncoderGate::MustWait({7, 0}, vision, 100, 2));
  EXPECT_TRUE(EncoderGate::MustWait({7, 1}, vision, 100, 2));
  EXPECT_TRUE(EncoderGate::MustWait({8, 5}, vision, 100, 2));
  EXPECT_FALSE(EncoderGate::MustWait({9, 0}, vision, 100, 2));
}

TEST(EncoderGateTest, LanguageDoesNotOvertakeActiveVision) {
  EncoderGate::Progress vision = Progress();
  EXPECT_TRUE(EncoderGate::MustWait({9, 0}, vision, 0, 2));
  EXPECT_TRUE(EncoderGate::MustWait({90, 0}, vision, 0, 2));
  vision.goes_on = false;
  EXPECT_FALSE(EncoderGate::MustWait({9, 0}, vision, 0, 2));
}

TEST(EncoderGateTest, LanguageWaitsLessTheLongerVisionIsIdle) {
  EncoderGate::Progress vision = Progress();
  vision.looks_still = EncoderGate::kPausedLooks - 1;
  EXPECT_TRUE(EncoderGate::MustWait({9, 0}, vision, 0, 2));
  vision.looks_still = EncoderGate::kPausedLooks;
  EXPECT_FALSE(EncoderGate::MustWait({11, 7}, vision, 0, 2));
  EXPECT_TRUE(EncoderGate::MustWait({12, 0}, vision, 0, 2));
  vision.looks_still = EncoderGate::kStalledLooks;
  EXPECT_FALSE(EncoderGate::MustWait({1000, 0}, vision, 0, 2));
  // This is before clients give up on the server.
  EXPECT_LT(EncoderGate::kStalledLooks * EncoderGate::kLookInterval,
            absl::Seconds(30));
}

TEST(EncoderGateTest, LanguageAheadOfVisionBeginsABlockNowAndThen) {
  const EncoderGate::Progress vision = Progress();
  EXPECT_TRUE(EncoderGate::MustWait(
      {90, 0}, vision, EncoderGate::kEncoderBlocksPerBlock - 1, 2));
  EXPECT_FALSE(EncoderGate::MustWait({90, 0}, vision,
                                     EncoderGate::kEncoderBlocksPerBlock, 2));
}

TEST(EncoderGateTest, ImagesAreCheckedIfBadSamplesAreReplaced) {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  EXPECT_TRUE(ChecksImages(config));
  config.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  EXPECT_FALSE(ChecksImages(config));
  EXPECT_FALSE(ChecksImages(JobConfig(0, 2, kGlobal, kMicro)));
}

class EncoderGateLoaderTest : public LoaderTesting {
 protected:
  // Makes `looks` looks pass.
  void Look(uint32_t looks) {
    for (uint32_t i = 0; i < looks; ++i) {
      clock_.AwaitSleepers(1);
      clock_.Advance(EncoderGate::kLookInterval);
      clock_.AwaitSleepers(1);
    }
  }

  BlockingStream Open(v1::Module module, uint32_t rank, uint64_t step) {
    return BlockingStream(loader_.get(), module, rank, step, 0, 0);
  }
};

TEST_F(EncoderGateLoaderTest, LanguageIsBuiltAfterVisionDecodedItsImages) {
  config_.mutable_serve()->set_threads(16);
  config_.mutable_serve()->set_prefetch_steps(3);
  Start(config_);
  BlockingStream vision[] = {Open(v1::MODULE_VISION, 0, 0),
                             Open(v1::MODULE_VISION, 1, 0)};
  BlockingStream language[] = {Open(v1::MODULE_LANGUAGE, 0, 0),
                               Open(v1::MODULE_LANGUAGE, 1, 0)};
  int taken[] = {0, 0};
  for (int block = 0; block < 20; ++block) {
    for (BlockingStream& stream : vision) ASSERT_TRUE(stream.Next().ok());
    // The client takes every block that is ready.
    for (int rank = 0; rank < 2; ++rank) {
      while (language[rank]->TryNext().has_value()) ++taken[rank];
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    for (; taken[rank] < 20; ++taken[rank]) {
      ASSERT_TRUE(language[rank].Next().ok());
    }
  }
  EXPECT_TRUE(builder_->unseen().empty());
}

TEST_F(EncoderGateLoaderTest, NothingWaitsIfBadSamplesEndTheRun) {
  config_.mutable_serve()->set_threads(16);
  config_.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  Start(config_);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  EXPECT_TRUE(language.Next().ok());
  builder_->OpenGate();
}

// The stalled stream's client may be waiting for language.
TEST_F(EncoderGateLoaderTest, StalledVisionDoesNotBlockLanguageForLong) {
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  // Vision prepares steps 0 to 2 for a client that takes nothing.
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
  while (loader_->stats().streams_awaiting_encoders == 0)
    std::this_thread::yield();
  Look(EncoderGate::kPausedLooks);  // allows prefetch_steps more
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
  Look(EncoderGate::kStalledLooks - EncoderGate::kPausedLooks);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
}

// Vision makes progress again when language is twenty steps ahead.
TEST_F(EncoderGateLoaderTest, LanguageAheadRunsAtAQuarterOfVisionsPace) {
  config_.mutable_serve()->set_prefetch_steps(0);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(language.Next().ok());
  Look(EncoderGate::kStalledLooks);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
  int taken = 0;
  for (int i = 1; taken < 10; ++i) {
    ASSERT_LT(i, 1000);
    ASSERT_TRUE(vision.Next().ok());
    while (language->TryNext().has_value()) ++taken;
    // Blocks of the step that had begun, and one for every four of vision.
    EXPECT_LE(taken, 2 + i / 4 + 1);
  }
}

TEST_F(EncoderGateLoaderTest, VisionShortOfMemoryDoesNotBlockLanguageForLong) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  const auto held = vision.Next();
  ASSERT_TRUE(held.ok()) << held.status();
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  ASSERT_TRUE(language.Next().ok());
  Look(EncoderGate::kStalledLooks);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
}

// A tool may read old steps besides the rank's own stream.
TEST_F(EncoderGateLoaderTest, ARanksMostAdvancedStreamCounts) {
  BlockingStream old = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 100);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 100);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
}

TEST_F(EncoderGateLoaderTest, LanguageDoesNotWaitForVisionThatHasEnded) {
  BlockingStream vision(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 1);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
}

TEST_F(EncoderGateLoaderTest, LanguageDoesNotWaitForVisionThatFails) {
  builder_->FailAt(0);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 1, 0);
  EXPECT_TRUE(language.Next().ok());
  // The step does not exist.
  BlockingStream none = Open(v1::MODULE_VISION, 0, UINT64_MAX / kGlobal);
  EXPECT_TRUE(language.Next().ok());
}

TEST_F(EncoderGateLoaderTest, LanguageDoesNotWaitForVisionWhoseStreamIsClosed) {
  config_.mutable_serve()->set_threads(64);
  Start(config_);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  builder_->AwaitWorking(1);
  EXPECT_FALSE(language->TryNext().has_value());
  vision->Close();
  EXPECT_TRUE(language.Next().ok());
  builder_->OpenGate();
}

}  // namespace
}  // namespace ballast
