// Indexes, serves and packs real photographs and conversations, if the folder
// with them is there.

#include <optional>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/shared_dir.h"
#include "tests/fakes/test_cluster.h"

namespace ballast {
namespace {

TEST(SharedCorpusTest, IndexesServesAndPacksTheCorpus) {
  constexpr char kSamples[] = "corpus/samples.jsonl";
  const std::optional<std::string> shared = SharedDirWith(kSamples);
  if (!shared) GTEST_SKIP() << NotShared(kSamples);
  const std::string corpus = *shared + "/corpus";
  const auto config = ParseConfig(
      absl::StrCat("sources: [{name: photos, format: jsonl, path: '", corpus,
                   "/samples.jsonl', media_root: '", corpus, "', index: '",
                   ::testing::TempDir(), "/photos.index'}]\n",
                   "model: {profile: qwen2_5_vl, max_pixels: 1003520}\n"
                   "batch: {global: 64, micro: 16, max_tokens: 16384}\n"
                   "topology: {modules: {vision: {dp: 4}, language: {dp: 4}}}\n"
                   "serve: {threads: 2, memory: 512MiB}\n"),
      "test.yaml", ::testing::TempDir());
  ASSERT_TRUE(config.ok()) << config.status();
  auto cluster = TestCluster::Start(*config);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto batches = (*cluster)->RunRanks(0, 1);
  ASSERT_TRUE(batches.ok()) << batches.status();
  // One step is one epoch of the 64 samples, which refer to 79 images (counted
  // in the file).
  std::set<uint64_t> vision, language;
  uint64_t images = 0;
  for (const auto& [key, batch] : *batches) {
    const bool is_vision = std::get<2>(key) == v1::MODULE_VISION;
    for (const PackedSample& sample : batch.samples) {
      EXPECT_FALSE(sample.placeholder) << sample.name;
      (is_vision ? vision : language).insert(sample.ordinal);
    }
    if (is_vision) images += batch.vision.image_grid_thw.size() / 3;
  }
  EXPECT_EQ(vision.size(), 64u);
  EXPECT_EQ(language.size(), 64u);
  EXPECT_EQ(images, 79u);
}

}  // namespace
}  // namespace ballast
