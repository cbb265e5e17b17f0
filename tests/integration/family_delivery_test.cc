// The whole path for model families, from tar files to packed batches in every
// rank: delivery modes pack the same bytes.

#include <filesystem>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

std::string Tokenizer() {
  return std::filesystem::absolute(
             "tests/server/text/testdata/family_chats.tokenizer.json")
      .string();
}

// A model of one rule, with small numbers, so that the formula images (56 to
// 140 pixels a side) are cut, padded and resized.
struct Family {
  const char* name;
  const char* numbers;
};

constexpr Family kFamilies[] = {
    {"smart_resize",
     "rule: smart_resize, layout: merge_order, merge: 2, "
     "min_pixels: 784, max_pixels: 12544"},
    {"smart_resize_frames",
     "rule: smart_resize_frames, layout: merge_order, merge: 2, "
     "temporal_patch: 2, min_pixels: 784, max_pixels: 12544"},
    {"fill_budget",
     "rule: fill_budget, layout: raster_batch, merge: 2, max_patches: 40"},
    {"fit_budget",
     "rule: fit_budget, layout: raster_pixels, max_patches: 40, "
     "filter: bilinear"},
    {"shrink_and_pad",
     "rule: shrink_and_pad, layout: kimi, merge: 2, "
     "max_patches: 40, longest_edge: 280"},
    {"longest_edge", "rule: longest_edge, merge: 2, longest_edge: 112"},
    {"fixed_size", "rule: fixed_size, tile: 59, max_tiles: 1"},
    {"center_crop", "rule: center_crop, tile: 56"},
    {"pad_square", "rule: pad_square, tile: 56, background: [9, 8, 7]"},
    {"pinpoints",
     "rule: pinpoints, tile: 56, canvases: [{height: 56, width: "
     "112}, {height: 112, width: 56}]"},
    {"tile_grid", "rule: tile_grid, tile: 56, merge: 2, max_tiles: 4"},
    {"longest_edge_tiles",
     "rule: longest_edge_tiles, tile: 56, merge: 2, "
     "longest_edge: 112, filter: lanczos"},
    {"best_fit_tiles",
     "rule: best_fit_tiles, tile: 56, merge: 2, max_tiles: 4"},
    {"slices",
     "rule: slices, layout: strips, tile: 56, merge: 2, max_tiles: 4"},
};

LoadedConfig FamilyConfig(const Family& family, const std::string& delivery) {
  TestJob job;
  job.sources = absl::StrCat(
      "{name: docs, format: webdataset, path: 'docs-*.tar', index: '",
      ::testing::TempDir(), "/", family.name, ".index'}");
  job.model = absl::StrCat(
      "tokenizer: '", Tokenizer(),
      "', token_ids: {end_of_text: 7}, chat_template: llava1_5, "
      "mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4], "
      "image_family: {patch: 14, marks: {placeholder: '<image>'}, ",
      family.numbers, "}");
  job.balance = "delivery: " + delivery;
  return ParseJob(job, FormulaFolder("formula", 50));
}

class FamilyDeliveryTest : public ::testing::TestWithParam<Family> {};

TEST_P(FamilyDeliveryTest, ModesPackTheSameBytes) {
  TestCluster::Batches batches[3];
  int next = 0;
  for (const char* mode : {"exchange", "direct", "hybrid"}) {
    auto run = StartCluster(FamilyConfig(GetParam(), mode))->RunRanks(0, 3);
    if (absl::IsUnimplemented(run.status())) {
      GTEST_SKIP() << "SKIPPED: " << run.status().message();
    }
    ASSERT_TRUE(run.ok()) << run.status();
    batches[next++] = *std::move(run);
  }
  ASSERT_FALSE(batches[0].empty());
  uint64_t moved = 0;
  uint64_t images = 0;
  for (const auto& [key, batch] : batches[0]) {
    for (const int other : {1, 2}) {
      ASSERT_TRUE(batches[other].contains(key));
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(batches[other].at(key)));
    }
    moved += batch.bytes_moved;
    if (std::get<2>(key) != v1::MODULE_VISION) continue;
    images += batch.vision.image_grid_thw.size();
    EXPECT_FALSE(batch.Get<float>("pixel_values").empty());
    for (const PackedSample& sample : batch.samples) {
      EXPECT_FALSE(sample.placeholder);
    }
  }
  EXPECT_GT(moved, 0u);
  EXPECT_GT(images, 0u);
}

INSTANTIATE_TEST_SUITE_P(Rules, FamilyDeliveryTest,
                         ::testing::ValuesIn(kFamilies), [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace ballast
