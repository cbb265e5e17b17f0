#include "trainer_shim/host/host_batch_maker.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer_shim/host/assemble_all.h"
#include "tests/trainer_shim/host/dp_sizes_test_base.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

using BatchAssemblerTest = DpSizesTest;

TEST_P(BatchAssemblerTest, ExchangeAndDirectAreByteIdentical) {
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    for (const PixelType type : {PixelType::kFloat32, PixelType::kBfloat16}) {
      const auto exchanged =
          AssembleAll(Job(v1::DELIVERY_EXCHANGE), module, type);
      const auto direct = AssembleAll(Job(v1::DELIVERY_DIRECT), module, type);
      uint64_t moved = 0;
      for (size_t rank = 0; rank < exchanged.size(); ++rank) {
        for (size_t m = 0; m < exchanged[rank].size(); ++m) {
          ASSERT_TRUE(exchanged[rank][m].ok()) << exchanged[rank][m].status();
          ASSERT_TRUE(direct[rank][m].ok()) << direct[rank][m].status();
          EXPECT_EQ(ComputeDigest(*exchanged[rank][m]),
                    ComputeDigest(*direct[rank][m]));
          EXPECT_EQ(direct[rank][m]->bytes_moved, 0);
          moved += exchanged[rank][m]->bytes_moved;
        }
      }
      // Otherwise the comparison would prove nothing.
      EXPECT_EQ(moved > 0, exchanged.size() > 1);
    }
  }
}

TEST_P(BatchAssemblerTest, TextLiesWhereTheFormulaSays) {
  const auto ranks =
      AssembleAll(Job(v1::DELIVERY_EXCHANGE), v1::MODULE_LANGUAGE);
  for (const auto& batches : ranks) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto ids = batch->Get<int64_t>("input_ids");
      const auto labels = batch->Get<int64_t>("labels");
      const auto positions = batch->Get<int64_t>("position_ids");
      const size_t total = ids.size();
      ASSERT_EQ(batch->text.cu_seqlens_padded.back(), total);
      for (size_t i = 0; i < batch->samples.size(); ++i) {
        const uint64_t position = batch->samples[i].position;
        const size_t begin = batch->text.cu_seqlens_padded[i];
        const size_t length =
            batch->text.cu_seqlens[i + 1] - batch->text.cu_seqlens[i];
        for (size_t t = 0; t < length; ++t) {
          EXPECT_EQ(ids[begin + t], FormulaId(position, t));
          EXPECT_EQ(labels[begin + t], FormulaLabel(position, t));
          for (size_t axis = 0; axis < 3; ++axis) {
            EXPECT_EQ(positions[axis * total + begin + t],
                      FormulaPositionId(position, axis, t));
          }
        }
        for (size_t t = begin + length;
             t < static_cast<size_t>(batch->text.cu_seqlens_padded[i + 1]);
             ++t) {
          EXPECT_EQ(ids[t], 7);
        }
      }
    }
  }
}

// Every rank's rows are as long as the longest sample of all ranks, and hold
// what the packed batch holds.
TEST_P(BatchAssemblerTest, PaddedRowsHoldThePackedSamples) {
  SyntheticJob job = Job(v1::DELIVERY_EXCHANGE);
  const auto packed = AssembleAll(job, v1::MODULE_LANGUAGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  job.padded = true;
  for (const uint32_t fixed : {0, 64}) {
    job.row_length = fixed;
    const auto padded = AssembleAll(job, v1::MODULE_LANGUAGE);
    for (size_t rank = 0; rank < padded.size(); ++rank) {
      for (size_t m = 0; m < padded[rank].size(); ++m) {
        ASSERT_TRUE(padded[rank][m].ok()) << padded[rank][m].status();
        const PackedBatch& rows = *padded[rank][m];
        const PackedBatch& row = *packed[rank][m];
        const auto& tokens = schedule.micro_batches(m).tokens();
        const size_t longest = *std::max_element(tokens.begin(), tokens.end());
        const size_t s = fixed > 0 ? fixed : (longest + 3) / 4 * 4;
        const size_t n = row.samples.size();
        EXPECT_TRUE(rows.padded);
        EXPECT_EQ(rows.max_seqlen, s);
        EXPECT_EQ(rows.totals.padded_tokens, n * s);
        ASSERT_EQ(rows.Get<int64_t>("input_ids").size(), n * s);
        ASSERT_EQ(rows.Get<int64_t>("position_ids").size(), 3 * n * s);
        ASSERT_EQ(rows.Get<uint8_t>("attention_mask").size(), n * s);
        for (size_t i = 0; i < n; ++i) {
          const size_t begin = row.text.cu_seqlens_padded[i];
          const size_t real =
              row.text.cu_seqlens[i + 1] - row.text.cu_seqlens[i];
          for (size_t t = 0; t < s; ++t) {
            const size_t at = i * s + t;
            const bool is_real = t < real;
            EXPECT_EQ(rows.Get<uint8_t>("attention_mask")[at], is_real);
            EXPECT_EQ(rows.Get<int64_t>("input_ids")[at],
                      is_real ? row.Get<int64_t>("input_ids")[begin + t] : 7);
            EXPECT_EQ(rows.Get<int64_t>("labels")[at],
                      is_real ? row.Get<int64_t>("labels")[begin + t] : -100);
            EXPECT_EQ(rows.Get<float>("loss_mask")[at],
                      is_real ? row.Get<float>("loss_mask")[begin + t] : 0);
            for (size_t axis = 0; axis < 3; ++axis) {
              EXPECT_EQ(
                  rows.Get<int64_t>("position_ids")[axis * n * s + at],
                  is_real
                      ? row.Get<int64_t>(
                            "position_ids")[axis * row.Get<int64_t>("input_ids")
                                                       .size() +
                                            begin + t]
                      : 0);
            }
          }
        }
      }
    }
  }
}

TEST_P(BatchAssemblerTest, PixelsLieWhereTheFormulaSays) {
  const SyntheticJob job = Job(v1::DELIVERY_EXCHANGE);
  const v1::StepSchedule schedule = SyntheticSchedule(job, kStep);
  const NormaliseTable table({.5, .5, .5}, {.25, .25, .25},
                             Normalisation::kTorchvision);
  constexpr size_t kPlane = 4 * 4, kRow = 3 * 2 * kPlane;
  for (const auto& batches : AssembleAll(job, v1::MODULE_VISION)) {
    for (const auto& batch : batches) {
      ASSERT_TRUE(batch.ok()) << batch.status();
      const auto pixels = batch->Get<float>("pixel_values");
      const auto& columns = schedule.micro_batches(batch->micro_batch);
      size_t image = 0, row = 0;
      for (const PackedSample& sample : batch->samples) {
        const uint32_t images =
            columns.images(sample.position - columns.position(0));
        for (uint32_t k = 0; k < images; ++k, ++image) {
          const uint32_t h = batch->vision.image_grid_thw[3 * image + 1];
          const uint32_t w = batch->vision.image_grid_thw[3 * image + 2];
          for (uint32_t r = 0; r < h * w; ++r, ++row) {
            // The r-th patch in merged order, in raster order.
            const uint32_t token = r / 4;
            const uint32_t gh = token / (w / 2) * 2 + r % 4 / 2;
            const uint32_t gw = token % (w / 2) * 2 + r % 2;
            for (size_t value = 0; value < kRow; ++value) {
              const uint32_t c = value / (2 * kPlane);
              const uint8_t wanted =
                  FormulaPixel(sample.position, k, w, 4, gh * 4, gw * 4, c);
              ASSERT_EQ(pixels[row * kRow + value], table.floats(c)[wanted])
                  << "position " << sample.position << " image " << k
                  << " patch " << gh << "," << gw << " channel " << c;
            }
          }
        }
      }
      EXPECT_EQ(pixels.size(), row * kRow);
      EXPECT_EQ(batch->vision.image_grid_thw.size(), 3 * image);
      EXPECT_EQ(batch->totals.patches, row);
      EXPECT_EQ(batch->totals.images, image);
    }
  }
}

TEST_P(BatchAssemblerTest, ModulesHoldTheSameSamplesInTheSameOrder) {
  for (const v1::Delivery delivery :
       {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT, v1::DELIVERY_OFF}) {
    std::vector<std::vector<std::string>> orders;
    PackedTotals sums[2];
    for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
      const auto ranks = AssembleAll(Job(delivery), module);
      std::vector<std::string> order;
      for (uint32_t m = 0; m < 2; ++m) {
        PackedTotals sum;
        for (const auto& batches : ranks) {
          ASSERT_TRUE(batches[m].ok()) << batches[m].status();
          for (const PackedSample& sample : batches[m]->samples) {
            order.push_back(sample.name);
          }
          sum += batches[m]->totals;
        }
        EXPECT_EQ(sum, ranks[0][m]->micro_batch_totals);
        sums[module == v1::MODULE_VISION] += sum;
      }
      EXPECT_EQ(sums[module == v1::MODULE_VISION], ranks[0][0]->step_totals);
      orders.push_back(std::move(order));
    }
    EXPECT_EQ(orders[0], orders[1]);
    EXPECT_EQ(sums[0], sums[1]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    DataParallelSizes, BatchAssemblerTest,
    ::testing::ValuesIn(std::vector<std::tuple<uint32_t, uint32_t>>{
        {1, 1}, {2, 2}, {4, 4}, {2, 4}, {4, 2}, {2, 3}}),
    [](const auto& info) {
      return "vision" + std::to_string(std::get<0>(info.param)) + "language" +
             std::to_string(std::get<1>(info.param));
    });

// Rank 0 reads everything, so the others' blocks are empty.
TEST(BatchAssemblerEmptyTest, ARankMayReadNothing) {
  const auto rank_0_reads = [](v1::StepSchedule* schedule) {
    for (auto& columns : *schedule->mutable_micro_batches()) {
      for (auto& module : *columns.mutable_modules()) {
        for (uint32_t& reader : *module.mutable_reader()) reader = 0;
      }
    }
  };
  SyntheticJob job;
  job.vision_dp = job.language_dp = 3;
  SyntheticJob direct_job = job;
  direct_job.delivery = v1::DELIVERY_DIRECT;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const auto exchanged =
        AssembleAll(job, module, PixelType::kFloat32, {}, rank_0_reads);
    const auto direct = AssembleAll(direct_job, module);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      for (uint32_t m = 0; m < 2; ++m) {
        ASSERT_TRUE(exchanged[rank][m].ok()) << exchanged[rank][m].status();
        EXPECT_EQ(exchanged[rank][m]->bytes_read == 256, rank != 0);
        EXPECT_EQ(ComputeDigest(*exchanged[rank][m]),
                  ComputeDigest(*direct[rank][m]));
      }
    }
  }
}

// The last rank owns nothing.
TEST(BatchAssemblerEmptyTest, AVisionRankMayOwnNothingALanguageRankMayNot) {
  SyntheticJob job;
  job.vision_dp = job.language_dp = 3;
  job.samples_per_group = 1;
  job.uneven = true;
  for (const auto delivery : {v1::DELIVERY_EXCHANGE, v1::DELIVERY_DIRECT}) {
    job.delivery = delivery;
    const auto vision = AssembleAll(job, v1::MODULE_VISION);
    for (uint32_t m = 0; m < 2; ++m) {
      for (uint32_t rank = 0; rank < 2; ++rank) {
        ASSERT_TRUE(vision[rank][m].ok()) << vision[rank][m].status();
        EXPECT_FALSE(vision[rank][m]->samples.empty());
      }
      const auto& idle = vision[2][m];
      ASSERT_TRUE(idle.ok()) << idle.status();
      EXPECT_TRUE(idle->samples.empty());
      EXPECT_TRUE(idle->Get<float>("pixel_values").empty());
      EXPECT_TRUE(idle->vision.image_grid_thw.empty());
      EXPECT_EQ(idle->vision.cu_seqlens, std::vector<int32_t>{0});
      EXPECT_EQ(idle->totals, PackedTotals());
    }
    EXPECT_THAT(AssembleAll(job, v1::MODULE_LANGUAGE)[2][0].status().message(),
                HasSubstr("empty packed shard"));
  }
}

}  // namespace
}  // namespace ballast
