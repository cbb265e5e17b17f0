#include "server/delivery/vision_first.h"

#include <gtest/gtest.h>

#include "tests/server/delivery/loader_testing.h"

namespace ballast {
namespace {

TEST(VisionFirstTest, LanguageAwaitsVisionOfItsStepsAndThoseJustBefore) {
  EXPECT_TRUE(AwaitsVision({7, 1}, {7, 1}, 0));
  EXPECT_TRUE(AwaitsVision({7, 1}, {7, 0}, 0));
  EXPECT_FALSE(AwaitsVision({7, 1}, {7, 2}, 0));
  EXPECT_FALSE(AwaitsVision({7, 1}, {8, 0}, 9));
  EXPECT_TRUE(AwaitsVision({7, 1}, {5, 3}, 2));
  EXPECT_FALSE(AwaitsVision({7, 1}, {4, 3}, 2));
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
  BlockingStream Open(v1::Module module, uint32_t rank, uint64_t step) {
    return BlockingStream(loader_.get(), module, rank, step, 0, 0);
  }
};

// Vision's clients hold nothing; language's window is as far ahead as it may
// be.
TEST_F(VisionFirstLoaderTest, LanguageIsBuiltWhenItsImagesHaveBeenSeen) {
  config_.mutable_serve()->set_threads(16);
  config_.mutable_serve()->set_prefetch_steps(3);
  Start(config_);
  BlockingStream vision[] = {Open(v1::MODULE_VISION, 0, 0),
                             Open(v1::MODULE_VISION, 1, 0)};
  BlockingStream language[] = {Open(v1::MODULE_LANGUAGE, 0, 0),
                               Open(v1::MODULE_LANGUAGE, 1, 0)};
  for (int block = 0; block < 20; ++block) {
    for (BlockingStream& stream : vision) ASSERT_TRUE(stream.Next().ok());
    for (BlockingStream& stream : language) ASSERT_TRUE(stream.Next().ok());
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

// Its blocks wait for a consumer, who may wait for language's.
TEST_F(VisionFirstLoaderTest, VisionThatNobodyTakesHoldsNothingUp) {
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorDoesVisionThatIsShortOfMemory) {
  config_.mutable_serve()->set_memory(1);
  Start(config_);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  const auto held = vision.Next();
  ASSERT_TRUE(held.ok()) << held.status();
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 0);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorVisionOfLongAgo) {
  config_.mutable_serve()->set_threads(64);
  Start(config_);
  builder_->ShutGate(v1::MODULE_VISION);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 0, 20);
  EXPECT_TRUE(language.Next().ok());
  builder_->OpenGate();
}

TEST_F(VisionFirstLoaderTest, NorVisionThatFails) {
  builder_->FailAt(0);
  BlockingStream vision = Open(v1::MODULE_VISION, 0, 0);
  BlockingStream language = Open(v1::MODULE_LANGUAGE, 1, 0);
  EXPECT_TRUE(language.Next().ok());
  // A step that there is not.
  BlockingStream none = Open(v1::MODULE_VISION, 0, UINT64_MAX / kGlobal);
  EXPECT_TRUE(language.Next().ok());
}

TEST_F(VisionFirstLoaderTest, NorVisionThatNobodyWantsAnyLonger) {
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
