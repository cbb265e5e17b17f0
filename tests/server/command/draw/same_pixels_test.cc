// What is drawn does not depend on the processor or on threads.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <opencv2/core/utility.hpp>

#include "server/command/draw/canvas.h"
#include "server/command/draw/draw_sample.h"

namespace ballast {
namespace {

// Has scenes, receipts, pages and tables.
constexpr uint64_t kSamples = 8;

std::vector<std::string> Draw() {
  std::vector<std::string> files;
  for (uint64_t number = 0; number < kSamples; ++number) {
    const auto sample = DrawSample(Preset::kMixed, 3, number);
    EXPECT_TRUE(sample.ok()) << sample.status();
    for (const DrawnImage& image : sample->images) {
      files.push_back(image.bytes);
    }
  }
  return files;
}

// Without its optimisations OpenCV runs the code of the oldest processor that
// it knows, and with them that of this one.
TEST(SamePixelsTest, OnEveryProcessor) {
  const std::vector<std::string> here = Draw();
  ASSERT_GT(here.size(), kSamples / 2);
  ASSERT_TRUE(cv::useOptimized());
  cv::setUseOptimized(false);
  const std::vector<std::string> oldest = Draw();
  cv::setUseOptimized(true);
  ASSERT_EQ(oldest.size(), here.size());
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_TRUE(oldest[i] == here[i]) << "image " << i;
  }
}

TEST(SamePixelsTest, OnManyThreadsAtOnce) {
  KeepOpenCvOnOneThread();
  EXPECT_EQ(cv::getNumThreads(), 1);
  std::vector<std::vector<std::string>> drawn(3);
  std::vector<std::thread> threads;
  for (auto& files : drawn) {
    threads.emplace_back([&files] { files = Draw(); });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> alone = Draw();
  for (const auto& files : drawn) EXPECT_TRUE(files == alone);
}

}  // namespace
}  // namespace ballast
