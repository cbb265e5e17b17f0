// Mostly text: micro-batches with fewer images than vision ranks, from tar
// files to packed batches.

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

constexpr uint32_t kSamples = 60;
constexpr uint32_t kVisionRanks = 4;
constexpr uint64_t kSteps = 6;

// One sample in ten has an image.
uint32_t FewImages(uint32_t sample) { return sample % 10 == 0 ? 1 : 0; }

TestCluster::Batches RunWith(const std::string& delivery) {
  TestJob job = GridJob(kVisionRanks, 2, delivery, ", align_images: true");
  job.batch = "global: 24, micro: 12";
  return RunJob(
      ParseJob(job, FormulaFolder("mostly_text", kSamples, FewImages)), kSteps);
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
    ASSERT_EQ(own.size(), 2 * kSteps);
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
