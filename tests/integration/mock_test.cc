// A job of mock sources only, from drawn lengths to packed batches: there are
// no files, and paired ranks hold parts of the same samples.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/config/config_loader.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

constexpr int32_t kImageToken = 151655;  // qwen2_5_vl

LoadedConfig GetConfig(uint32_t vision, uint32_t language,
                       const std::string& delivery = "exchange") {
  TestJob job = GridJob(vision, language, delivery);
  job.sources =
      "{name: pictures, format: mock, lengths: {mode: lognormal, min: 50, max: "
      "900, mean: 300, sigma: 1.1, count: 500}, images: {max: 3, pixels: {min: "
      "3000, max: 100000, mean: 40000, sigma: 0.7}, aspect: 2}}, "
      "{name: words, format: mock, lengths: {mode: lognormal, min: 50, max: "
      "900, mean: 300, sigma: 1.1, count: 300}, weight: 0.5}";
  job.batch = "global: 24, micro: 12";
  return ParseJob(job, ::testing::TempDir());
}

// The tokens of every sample of a run, by the sample's name.
std::map<std::string, std::vector<int64_t>> GetTexts(
    const TestCluster::Batches& batches) {
  std::map<std::string, std::vector<int64_t>> texts;
  for (const auto& [key, batch] : batches) {
    if (batch.role.module() == v1::MODULE_VISION) continue;
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      EXPECT_FALSE(batch.samples[i].placeholder);
      const auto ids = batch.Get<int64_t>("input_ids");
      const auto begin = ids.begin() + batch.text.cu_seqlens_padded[i];
      texts[batch.samples[i].name].assign(
          begin,
          begin + batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i]);
    }
  }
  return texts;
}

TEST(MockTest, VisionAndLanguageRanksArePaired) {
  const TestCluster::Batches batches = RunJob(GetConfig(4, 4), 3, 2);
  ASSERT_EQ(batches.size(), 3u * 2 * 8);
  uint64_t images = 0;
  for (const auto& [key, vision] : batches) {
    const auto& [step, micro_batch, module, rank] = key;
    if (module != v1::MODULE_VISION) continue;
    const PackedBatch& language = batches.at(
        {step, micro_batch, static_cast<int>(v1::MODULE_LANGUAGE), rank});
    ASSERT_EQ(vision.samples.size(), language.samples.size());
    for (size_t i = 0; i < vision.samples.size(); ++i) {
      EXPECT_EQ(vision.samples[i].name, language.samples[i].name);
    }
    // Every vision token has its placeholder.
    int64_t placeholders = 0;
    for (const int64_t id : language.Get<int64_t>("input_ids")) {
      placeholders += id == kImageToken;
    }
    EXPECT_EQ(placeholders * 4, static_cast<int64_t>(vision.totals.patches));
    EXPECT_EQ(vision.totals, language.totals);
    images += vision.totals.images;
    // The pictures are not empty.
    if (vision.totals.images > 0) {
      float low = 100, high = -100;
      for (const float value : vision.Get<float>("pixel_values")) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
      EXPECT_GT(high - low, 0.5f);
    }
  }
  EXPECT_GT(images, 0u);
}

// A sample's content does not depend on its reader.
TEST(MockTest, AnotherLayoutHasTheSameSamples) {
  const auto a = GetTexts(RunJob(GetConfig(4, 4), 3, 2));
  const auto b = GetTexts(RunJob(GetConfig(2, 3, "direct"), 3, 1));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 72u);
  // No two samples are equal, on any ranks.
  std::set<std::vector<int64_t>> distinct;
  for (const auto& [name, ids] : a) distinct.insert(ids);
  EXPECT_EQ(distinct.size(), a.size());
}

}  // namespace
}  // namespace ballast
