#include "server/delivery/vision_first.h"

#include <gtest/gtest.h>

#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

TEST(VisionFirstTest, LanguageAwaitsVisionOfItsBlockAndOfThoseBefore) {
  EXPECT_TRUE(AwaitsVision({7, 1}, {7, 1}));
  EXPECT_TRUE(AwaitsVision({7, 1}, {7, 0}));
  EXPECT_FALSE(AwaitsVision({7, 1}, {7, 2}));
  EXPECT_FALSE(AwaitsVision({7, 1}, {8, 0}));
  EXPECT_TRUE(AwaitsVision({7 + kSameRun, 1}, {7, 3}));
  EXPECT_FALSE(AwaitsVision({8 + kSameRun, 1}, {7, 3}));
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
  // kPatience passes.
  void Tick() {
    clock_.AwaitSleepers(1);
    clock_.Advance(kPatience);
    clock_.AwaitSleepers(1);
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
  Tick();  // vision had just begun
  EXPECT_FALSE(language->TryNext().has_value());
  Tick();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
  // It moves again, and is waited for, though it is far behind by now.
  ASSERT_TRUE(vision.Next().ok());
  while (language->TryNext().has_value()) {
  }
  Tick();
  EXPECT_FALSE(language->TryNext().has_value());
  Tick();
  EXPECT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorVisionThatIsShortOfMemory) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  const auto held = vision.Next();
  ASSERT_TRUE(held.ok()) << held.status();
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  ASSERT_TRUE(language.Next().ok());
  Tick();
  Tick();
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NothingWaitsForVisionOfLongAgo) {
  config_.mutable_serve()->set_threads(64);
  Start(config_);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 20 + kSameRun);
  EXPECT_TRUE(language.Next().ok());
  builder_->OpenGate();
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
