// The whole path, from tar files to packed batches in every rank, for several
// dp sizes and delivery modes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

constexpr uint64_t kSteps = 3;

LoadedConfig MakeConfig(uint32_t vision_dp, uint32_t language_dp,
                        const std::string& delivery,
                        const std::string& balance = "") {
  return ParseJob(GridJob(vision_dp, language_dp, delivery, balance),
                  FormulaFolder("formula", 50));
}

std::vector<uint64_t> Positions(const PackedBatch& batch) {
  std::vector<uint64_t> positions;
  for (const PackedSample& sample : batch.samples) {
    positions.push_back(sample.position);
  }
  return positions;
}

// All positions of a micro-batch, ordered by rank, then by place.
std::vector<uint64_t> InRankOrder(const TestCluster::Batches& batches,
                                  uint64_t step, uint32_t micro_batch,
                                  v1::Module module) {
  std::vector<uint64_t> all;
  for (const auto& [key, batch] : batches) {
    if (std::get<0>(key) != step || std::get<1>(key) != micro_batch ||
        std::get<2>(key) != module) {
      continue;
    }
    const std::vector<uint64_t> positions = Positions(batch);
    all.insert(all.end(), positions.begin(), positions.end());
  }
  return all;
}

class DeliveryTest
    : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  uint32_t vision() const { return std::get<0>(GetParam()); }
  uint32_t language() const { return std::get<1>(GetParam()); }
  uint32_t micro() const { return 4 * std::lcm(vision(), language()); }

  // Checks that the step's micro-batches together hold its positions, once for
  // each module, and both modules the same samples in the same order.
  void ExpectStep(const TestCluster::Batches& batches, uint64_t step,
                  uint32_t micro_batches) {
    std::vector<uint64_t> all;
    for (uint32_t m = 0; m < micro_batches; ++m) {
      const auto positions = InRankOrder(batches, step, m, v1::MODULE_VISION);
      EXPECT_EQ(positions, InRankOrder(batches, step, m, v1::MODULE_LANGUAGE));
      all.insert(all.end(), positions.begin(), positions.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<uint64_t> expected(2 * micro());
    std::iota(expected.begin(), expected.end(), 2 * step * micro());
    EXPECT_EQ(all, expected);
  }

  // Checks that every position of every step is in exactly one batch of each
  // module, and that both modules hold the same samples in the same order.
  void ExpectComplete(const TestCluster::Batches& batches) {
    for (uint64_t step = 0; step < kSteps; ++step) {
      for (uint32_t m = 0; m < 2; ++m) {
        const auto of_vision = InRankOrder(batches, step, m, v1::MODULE_VISION);
        EXPECT_EQ(of_vision,
                  InRankOrder(batches, step, m, v1::MODULE_LANGUAGE));
        std::vector<uint64_t> sorted = of_vision;
        std::sort(sorted.begin(), sorted.end());
        std::vector<uint64_t> expected(micro());
        std::iota(expected.begin(), expected.end(), (2 * step + m) * micro());
        EXPECT_EQ(sorted, expected) << "step " << step << " micro-batch " << m;
      }
    }
  }
};

TEST_P(DeliveryTest, ExchangeDirectAndHybridPackTheSameBytes) {
  const auto exchange =
      RunJob(MakeConfig(vision(), language(), "exchange"), kSteps);
  ExpectComplete(exchange);
  const auto direct =
      RunJob(MakeConfig(vision(), language(), "direct"), kSteps);
  ASSERT_EQ(direct.size(), exchange.size());
  uint64_t moved = 0;
  for (const auto& [key, batch] : exchange) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
    EXPECT_EQ(Positions(batch), Positions(direct.at(key)));
    moved += batch.bytes_moved;
    EXPECT_EQ(direct.at(key).bytes_moved, 0u);
  }
  EXPECT_EQ(moved > 0, vision() > 1 || language() > 1);

  // With one server nothing has to move; with two, only samples that cross
  // servers. The owner of a group also depends on the servers.
  for (const int servers : {1, 2}) {
    const auto all =
        RunJob(MakeConfig(vision(), language(), "exchange"), kSteps, servers);
    const auto hybrid =
        RunJob(MakeConfig(vision(), language(), "hybrid"), kSteps, servers);
    ASSERT_EQ(hybrid.size(), all.size());
    uint64_t crossed = 0;
    for (const auto& [key, batch] : all) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(hybrid.at(key)));
      EXPECT_EQ(Positions(batch), Positions(hybrid.at(key)));
      EXPECT_LE(hybrid.at(key).bytes_moved, batch.bytes_moved);
      crossed += hybrid.at(key).bytes_moved;
    }
    EXPECT_EQ(crossed > 0, servers == 2 && moved > 0);
  }
}

// Samples change micro-batches within a window of the step's two.
TEST_P(DeliveryTest, AWindowMovesSamplesBetweenItsMicroBatches) {
  const std::string window = ", scope: window, window: 2";
  const auto exchange =
      RunJob(MakeConfig(vision(), language(), "exchange", window), kSteps);
  const auto direct =
      RunJob(MakeConfig(vision(), language(), "direct", window), kSteps);
  ASSERT_EQ(direct.size(), exchange.size());
  for (const auto& [key, batch] : exchange) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
  }
  for (uint64_t step = 0; step < kSteps; ++step) {
    ExpectStep(exchange, step, 2);
  }
}

// The number of micro-batches follows from the lengths; every pack must fit.
TEST_P(DeliveryTest, ScheduledPackingDeliversWholeSteps) {
  auto config = MakeConfig(vision(), language(), "exchange");
  config.config.mutable_batch()->set_max_tokens(400);
  config.config.mutable_packing()->set_mode(v1::Packing::MODE_SCHEDULED);
  config.config.mutable_packing()->set_max_tokens_per_rank(400);
  const auto exchange = RunJob(config, kSteps);
  config.config.mutable_balance()->set_delivery(v1::DELIVERY_DIRECT);
  const auto direct = RunJob(config, kSteps);
  ASSERT_EQ(direct.size(), exchange.size());
  std::map<uint64_t, uint32_t> micro_batches;
  for (const auto& [key, batch] : exchange) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
    uint32_t& count = micro_batches[std::get<0>(key)];
    count = std::max(count, std::get<1>(key) + 1);
  }
  ASSERT_EQ(micro_batches.size(), kSteps);
  for (uint64_t step = 0; step < kSteps; ++step) {
    ExpectStep(exchange, step, micro_batches[step]);
  }
}

// Whatever the delivery, a sample's row is the same, and rows have one length
// on all ranks of a micro-batch.
TEST_P(DeliveryTest, PaddedRowsAreTheSameInAllDeliveries) {
  auto config =
      MakeConfig(vision(), language(), "exchange", ", equal_count: true");
  config.config.mutable_packing()->set_mode(v1::Packing::MODE_PADDED);
  const auto exchange = RunJob(config, kSteps);
  ExpectComplete(exchange);
  config.config.mutable_balance()->set_delivery(v1::DELIVERY_DIRECT);
  const auto direct = RunJob(config, kSteps);
  ASSERT_EQ(direct.size(), exchange.size());
  std::map<std::pair<uint64_t, uint32_t>, int32_t> lengths;
  for (const auto& [key, batch] : exchange) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
    if (batch.role.module() != v1::MODULE_LANGUAGE) continue;
    EXPECT_EQ(batch.samples.size(), micro() / language());
    const auto [length, is_first] = lengths.emplace(
        std::make_pair(batch.step, batch.micro_batch), batch.max_seqlen);
    EXPECT_EQ(length->second, batch.max_seqlen);
    EXPECT_EQ(batch.Get<int64_t>("input_ids").size(),
              batch.samples.size() * batch.max_seqlen);
  }
}

TEST_P(DeliveryTest, OffKeepsNaturalShards) {
  const auto batches = RunJob(MakeConfig(vision(), language(), "off"), kSteps);
  ExpectComplete(batches);
  for (const auto& [key, batch] : batches) {
    const auto [step, m, module, rank] = key;
    const uint32_t dp = module == v1::MODULE_VISION ? vision() : language();
    std::vector<uint64_t> expected(micro() / dp);
    std::iota(expected.begin(), expected.end(),
              (2 * step + m) * micro() + rank * micro() / dp);
    EXPECT_EQ(Positions(batch), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    DpSizes, DeliveryTest,
    ::testing::Values(std::make_tuple(1, 1), std::make_tuple(2, 2),
                      std::make_tuple(4, 4), std::make_tuple(2, 4),
                      std::make_tuple(4, 2), std::make_tuple(2, 3)));

// The row of patch (h, w) of an image `width` patches wide: 2x2 cells in raster
// order, and the four patches of a cell in raster order. The columns of a row
// are (channel, frame, y, x).
uint32_t PatchRow(uint32_t h, uint32_t w, uint32_t width) {
  return (h / 2 * (width / 2) + w / 2) * 4 + h % 2 * 2 + w % 2;
}

void ExpectFormulaPixels(const PackedBatch& batch) {
  constexpr double kMean[] = {0.48145466, 0.4578275, 0.40821073};
  constexpr double kStd[] = {0.26862954, 0.26130258, 0.27577711};
  constexpr uint32_t kColumns = 3 * 2 * kFormulaPatch * kFormulaPatch;
  const auto pixels = batch.Get<float>("pixel_values");
  uint64_t first_row = 0;
  size_t image_number = 0;
  for (const PackedSample& sample : batch.samples) {
    for (uint32_t k = 0; k < sample.ordinal % 4; ++k, ++image_number) {
      const FormulaGrid grid = GridOfFormulaImage(sample.ordinal, k);
      ASSERT_LT(3 * image_number + 2, batch.vision.image_grid_thw.size());
      EXPECT_EQ(batch.vision.image_grid_thw[3 * image_number + 1], grid.h);
      EXPECT_EQ(batch.vision.image_grid_thw[3 * image_number + 2], grid.w);
      for (uint32_t h = 0; h < grid.h; ++h) {
        for (uint32_t w = 0; w < grid.w; ++w) {
          const auto colour = FormulaColour(sample.ordinal, k, h, w);
          const uint64_t row = first_row + PatchRow(h, w, grid.w);
          for (uint32_t column = 0; column < kColumns; ++column) {
            const uint32_t c = column / (kColumns / 3);
            ASSERT_NEAR(pixels.at(row * kColumns + column),
                        (colour[c] - 255 * kMean[c]) / (255 * kStd[c]), 1e-5)
                << "sample " << sample.name << " image " << k << " patch (" << h
                << ", " << w << ") column " << column;
          }
        }
      }
      first_row += uint64_t{grid.h} * grid.w;
    }
  }
  EXPECT_EQ(pixels.size(), first_row * kColumns);
}

// Every pixel's colour is a formula of (sample, image, patch). After decoding,
// exchange and packing it must be where the formula says.
TEST(PixelsTest, AreAtTheirPlacesAfterPacking) {
  const auto batches = RunJob(MakeConfig(4, 2, "exchange"), kSteps);
  ASSERT_FALSE(batches.empty());
  for (const auto& [key, batch] : batches) {
    if (std::get<2>(key) == v1::MODULE_VISION) ExpectFormulaPixels(batch);
  }
}

// Text of the formula's samples in ChatML, with one token per byte.
TEST(TextTest, IdsAndLabelsSpellTheSample) {
  const auto batches = RunJob(MakeConfig(2, 2, "exchange"), kSteps);
  for (const auto& [key, batch] : batches) {
    if (std::get<2>(key) != v1::MODULE_LANGUAGE) continue;
    const auto ids = batch.Get<int64_t>("input_ids");
    const auto labels = batch.Get<int64_t>("labels");
    const auto mask = batch.Get<float>("loss_mask");
    for (size_t s = 0; s < batch.samples.size(); ++s) {
      std::string supervised;
      uint64_t placeholders = 0, wanted_placeholders = 0;
      for (int32_t i = batch.text.cu_seqlens_padded[s];
           i < batch.text.cu_seqlens_padded[s + 1]; ++i) {
        placeholders += ids[i] == 151655;
        EXPECT_EQ(mask[i], labels[i] == -100 ? 0 : 1);
        if (labels[i] == -100) continue;
        EXPECT_EQ(labels[i], ids[i + 1]);
        supervised += labels[i] < 256
                          ? std::string(1, static_cast<char>(labels[i]))
                          : absl::StrCat("<", labels[i], ">");
      }
      const uint64_t ordinal = batch.samples[s].ordinal;
      EXPECT_EQ(supervised, absl::StrCat("Sample ", ordinal, ".<151645>"));
      for (uint32_t k = 0; k < ordinal % 4; ++k) {
        const FormulaGrid grid = GridOfFormulaImage(ordinal, k);
        wanted_placeholders += grid.h * grid.w / 4;
      }
      EXPECT_EQ(placeholders, wanted_placeholders);
    }
  }
}

// The whole path for model families, from tar files to packed batches in every
// rank: delivery modes pack the same bytes.

std::string GetTokenizer() {
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
      "tokenizer: '", GetTokenizer(),
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

// Mostly text: micro-batches with fewer images than vision ranks, from tar
// files to packed batches.

constexpr uint32_t kSamples = 60;
constexpr uint32_t kVisionRanks = 4;
constexpr uint64_t kDummySteps = 6;

// One sample in ten has an image.
uint32_t FewImages(uint32_t sample) { return sample % 10 == 0 ? 1 : 0; }

TestCluster::Batches RunWith(const std::string& delivery) {
  TestJob job = GridJob(kVisionRanks, 2, delivery, ", align_images: true");
  job.batch = "global: 24, micro: 12";
  return RunJob(
      ParseJob(job, FormulaFolder("mostly_text", kSamples, FewImages)),
      kDummySteps);
}

// Checks grid, pixels and boundaries of the dummy at the end of the batch.
void ExpectDummy(const PackedBatch& batch) {
  constexpr double kMean[] = {0.48145466, 0.4578275, 0.40821073};
  constexpr double kStd[] = {0.26862954, 0.26130258, 0.27577711};
  constexpr size_t kColumns = 3 * 2 * kFormulaPatch * kFormulaPatch;
  const size_t images = batch.vision.image_grid_thw.size() / 3;
  ASSERT_EQ(images, batch.totals.images + 1);
  EXPECT_EQ(batch.vision.image_grid_thw[3 * images - 3], 1);
  EXPECT_EQ(batch.vision.image_grid_thw[3 * images - 2], 2);
  EXPECT_EQ(batch.vision.image_grid_thw[3 * images - 1], 2);
  const size_t rows = batch.totals.patches + 4;
  EXPECT_EQ(batch.vision.cu_seqlens.back(), rows);
  ASSERT_EQ(batch.Get<float>("pixel_values").size(), rows * kColumns);
  for (size_t i = batch.totals.patches * kColumns; i < rows * kColumns; ++i) {
    const size_t c = i % kColumns / (kColumns / 3);
    ASSERT_NEAR(batch.Get<float>("pixel_values")[i],
                (128 - 255 * kMean[c]) / (255 * kStd[c]), 1e-5);
  }
}

TEST(DummyImageTest, EveryVisionRankHasAnImageOrNoneHas) {
  std::map<std::string, TestCluster::Batches> of_delivery;
  for (const char* delivery : {"exchange", "direct", "off"}) {
    const TestCluster::Batches& batches = of_delivery[delivery] =
        RunWith(delivery);
    // Numbers of vision ranks with an image of their own, and with a dummy,
    // keyed by micro-batch.
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> own, dummies;
    for (const auto& [key, batch] : batches) {
      const auto [step, micro_batch, module, rank] = key;
      if (module != v1::MODULE_VISION) {
        EXPECT_FALSE(batch.dummy_image);
        continue;
      }
      own[{step, micro_batch}] += batch.totals.images > 0;
      dummies[{step, micro_batch}] += batch.dummy_image;
      if (batch.dummy_image) ExpectDummy(batch);
      // A vision rank has pixels in exactly these two cases.
      EXPECT_EQ(batch.Get<float>("pixel_values").empty(),
                batch.totals.images == 0 && !batch.dummy_image);
    }
    ASSERT_EQ(own.size(), 2 * kDummySteps);
    uint32_t aligned = 0, text_only = 0;
    for (const auto& [micro_batch, ranks] : own) {
      EXPECT_EQ(ranks + dummies[micro_batch], ranks == 0 ? 0 : kVisionRanks)
          << delivery << " step " << micro_batch.first << " micro-batch "
          << micro_batch.second;
      aligned += dummies[micro_batch] > 0;
      text_only += ranks == 0;
    }
    // Otherwise the test would show nothing.
    EXPECT_GT(aligned, 0);
    EXPECT_GT(text_only, 0);
  }
  const TestCluster::Batches& direct = of_delivery["direct"];
  ASSERT_EQ(direct.size(), of_delivery["exchange"].size());
  for (const auto& [key, batch] : of_delivery["exchange"]) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
  }
}

}  // namespace
}  // namespace ballast
