#include "server/delivery/vision_first.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

// Built up to (7, 1), begun up to (9, 0).
VisionLane Lane() {
  VisionLane lane;
  lane.missing = {7, 1};
  lane.to_begin = {9, 0};
  lane.goes_on = true;
  return lane;
}

TEST(VisionFirstTest, LanguageAwaitsVisionThatIsInWorkInAnyCase) {
  VisionLane lane = Lane();
  lane.goes_on = false;
  lane.looks_still = 100;
  EXPECT_FALSE(AwaitsVision({7, 0}, lane, 100, 2));
  EXPECT_TRUE(AwaitsVision({7, 1}, lane, 100, 2));
  EXPECT_TRUE(AwaitsVision({8, 5}, lane, 100, 2));
  EXPECT_FALSE(AwaitsVision({9, 0}, lane, 100, 2));
}

TEST(VisionFirstTest, LanguageDoesNotComeBeforeVisionThatMoves) {
  VisionLane lane = Lane();
  EXPECT_TRUE(AwaitsVision({9, 0}, lane, 0, 2));
  EXPECT_TRUE(AwaitsVision({90, 0}, lane, 0, 2));
  lane.goes_on = false;
  EXPECT_FALSE(AwaitsVision({9, 0}, lane, 0, 2));
}

TEST(VisionFirstTest, VisionThatStandsStillIsAwaitedLessAndLess) {
  VisionLane lane = Lane();
  lane.looks_still = kPauses - 1;
  EXPECT_TRUE(AwaitsVision({9, 0}, lane, 0, 2));
  lane.looks_still = kPauses;
  EXPECT_FALSE(AwaitsVision({11, 7}, lane, 0, 2));
  EXPECT_TRUE(AwaitsVision({12, 0}, lane, 0, 2));
  lane.looks_still = kStandsStill;
  EXPECT_FALSE(AwaitsVision({1000, 0}, lane, 0, 2));
  // Before clients give the server up.
  EXPECT_LT(kStandsStill * kLook, absl::Seconds(30));
}

TEST(VisionFirstTest, LanguageThatIsAheadGoesOnNowAndThen) {
  const VisionLane lane = Lane();
  EXPECT_TRUE(AwaitsVision({90, 0}, lane, kBlocksOfVision - 1, 2));
  EXPECT_FALSE(AwaitsVision({90, 0}, lane, kBlocksOfVision, 2));
}

TEST(VisionFirstTest, ImagesAreCheckedWhereBadSamplesAreReplaced) {
  v1::Config config = JobConfig(2, 2, kGlobal, kMicro);
  EXPECT_TRUE(ChecksImages(config));
  config.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  EXPECT_FALSE(ChecksImages(config));
  EXPECT_FALSE(ChecksImages(JobConfig(0, 2, kGlobal, kMicro)));
}

class VisionFirstLoaderTest : public LoaderTesting {
 protected:
  // So many looks are taken.
  void Look(uint32_t looks) {
    for (uint32_t i = 0; i < looks; ++i) {
      clock_.AwaitSleepers(1);
      clock_.Advance(kLook);
      clock_.AwaitSleepers(1);
    }
  }

  BlockingStream Open(v1::Module module, uint32_t rank, uint64_t step) {
    return BlockingStream(loader_.get(), module, rank, step, 0, 0);
  }
};

TEST_F(VisionFirstLoaderTest, LanguageIsBuiltWhenItsImagesHaveBeenSeen) {
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
    // As many as there are: its client takes all that it can get.
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

TEST_F(VisionFirstLoaderTest, NothingWaitsWhereBadSamplesEndTheRun) {
  config_.mutable_serve()->set_threads(16);
  config_.mutable_serve()->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_ERROR);
  Start(config_);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  EXPECT_TRUE(language.Next().ok());
  builder_->OpenGate();
}

// Its client may be the one that waits for language.
TEST_F(VisionFirstLoaderTest, VisionThatStandsStillHoldsNothingUpForLong) {
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  // All that vision prepares for a client that takes nothing: steps 0 to 2.
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
  while (loader_->stats().streams_awaiting_vision == 0)
    std::this_thread::yield();
  Look(kPauses);  // so many steps more
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
  Look(kStandsStill - kPauses);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
}

// Vision goes on, and language is twenty steps ahead.
TEST_F(VisionFirstLoaderTest, LanguageThatIsAheadGoesAQuarterAsFast) {
  config_.mutable_serve()->set_prefetch_steps(0);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(language.Next().ok());
  Look(kStandsStill);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
  int taken = 0;
  for (int i = 1; taken < 10; ++i) {
    ASSERT_LT(i, 1000);
    ASSERT_TRUE(vision.Next().ok());
    while (language->TryNext().has_value()) ++taken;
    // A step's that had been begun, and one for four of vision's.
    EXPECT_LE(taken, 2 + i / 4 + 1);
  }
}

TEST_F(VisionFirstLoaderTest, VisionThatIsShortOfMemoryHoldsNothingUpForLong) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  const auto held = vision.Next();
  ASSERT_TRUE(held.ok()) << held.status();
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  ASSERT_TRUE(language.Next().ok());
  Look(kStandsStill);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
}

// A tool that looks at old steps beside the rank's own stream.
TEST_F(VisionFirstLoaderTest, OfARanksStreamsTheFurthestCounts) {
  BlockingStream old = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 100);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 100);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NothingWaitsForVisionThatHasComeToItsEnd) {
  BlockingStream vision(loader_.get(), v1::MODULE_VISION, 0, 0, 0, 1);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorForVisionThatFails) {
  builder_->FailAt(0);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 1, 0);
  EXPECT_TRUE(language.Next().ok());
  // A step that there is not.
  BlockingStream none = Open(v1::MODULE_VISION, 0, UINT64_MAX / kGlobal);
  EXPECT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorForVisionThatNobodyWantsAnyLonger) {
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
