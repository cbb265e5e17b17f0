#include "server/command/draw/dataset_config.h"

#include <gtest/gtest.h>

#include "server/command/draw/draw_sample.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

TEST(DatasetConfigTest, LoadsAsAJobOfDpFour) {
  const auto loaded = ParseConfig(DatasetConfigText(DatasetFormat::kWebDataset),
                                  "ballast.yaml", "data");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Config& config = loaded->config;
  EXPECT_EQ(config.topology().modules().at("vision").dp(), 4u);
  EXPECT_EQ(config.topology().modules().at("language").dp(), 4u);
  EXPECT_EQ(config.model().tokenizer(), "bytes");
  EXPECT_EQ(config.sources(0).format(), v1::Source::FORMAT_WEBDATASET);
  EXPECT_EQ(config.sources(0).path(), "docs-*.tar");
  const auto parquet = ParseConfig(DatasetConfigText(DatasetFormat::kParquet),
                                   "ballast.yaml", "data");
  ASSERT_TRUE(parquet.ok()) << parquet.status();
  EXPECT_EQ(parquet->config.sources(0).format(), v1::Source::FORMAT_PARQUET);
  EXPECT_EQ(parquet->config.sources(0).path(), "docs-*.parquet");
}

// The bytes tokenizer turns every byte into a token.
TEST(DatasetConfigTest, HoldsEverySampleThatCanBeDrawn) {
  const auto loaded = ParseConfig(DatasetConfigText(DatasetFormat::kWebDataset),
                                  "ballast.yaml", "data");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const v1::Model& model = loaded->config.model();
  const uint64_t side = uint64_t{model.patch()} * model.merge();
  const uint64_t image = model.max_pixels() / (side * side) + 2;
  // Three pairs of turns and a system turn; each has a role, line breaks and
  // two special tokens.
  const uint64_t frames = 7 * (1 + sizeof("assistant\n") + 1 + 1);
  const uint64_t max_tokens = loaded->config.batch().max_tokens();
  EXPECT_LE(kMostBytesSaid + frames, max_tokens);
  EXPECT_LE(4 * image + kMostBytesSaidOfImages + frames, max_tokens);
}

}  // namespace
}  // namespace ballast
