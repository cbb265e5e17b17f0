// Ranks at every place of tensor, pipeline and context parallel layouts, from
// drawn samples to packed batches: context slices make up the whole, stages
// agree, tensor peers are equal, and no token is lost or doubled.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/config_loader.h"
#include "tests/fakes/edit_batch.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {
namespace {

constexpr uint64_t kPlacesSteps = 2;

struct Layout {
  uint32_t vision_dp = 2;
  uint32_t language_dp = 2;
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t cp = 1;
  std::string packing = "{align: 8}";
  std::string delivery = "exchange";
};

// The batches of the ranks at `place`. The schedule is the same for every tp,
// pp and cp, since the alignment is the same.
TestCluster::Batches BatchesAt(const TestCluster& cluster,
                               const TrainerPlace& place) {
  auto batches = cluster.RunRanks(0, kPlacesSteps, {}, place);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return batches.ok() ? *std::move(batches) : TestCluster::Batches();
}

std::unique_ptr<TestCluster> Start(const Layout& layout) {
  TestJob job =
      GridJob(layout.vision_dp, layout.language_dp, layout.delivery, "",
              absl::StrCat(", tp: ", layout.tp, ", pp: ", layout.pp,
                           ", cp: ", layout.cp));
  job.sources =
      "{name: mock, format: mock, lengths: {mode: lognormal, min: 20, max: "
      "400, mean: 150, sigma: 1.1, count: 400}, images: {max: 2, pixels: {min: "
      "3000, max: 40000, mean: 20000, sigma: 0.5}}}";
  job.batch += ", max_tokens: 1000";
  job.more = absl::StrCat("packing: ", layout.packing, "\n");
  return StartCluster(ParseJob(job, ::testing::TempDir()));
}

template <typename T>
std::vector<T> Pick(absl::Span<const T> whole,
                    const std::vector<int32_t>& indices, uint32_t axes) {
  std::vector<T> picked;
  for (uint32_t axis = 0; axis < axes; ++axis) {
    for (const int32_t i : indices) {
      picked.push_back(whole[axis * (whole.size() / axes) + i]);
    }
  }
  return picked;
}

// The part of `whole` that a rank at `place` must receive. `whole` is the batch
// of the only rank of a layout without peers.
PackedBatch GetPart(const PackedBatch& whole, const TrainerPlace& place,
                    const Layout& layout) {
  PackedBatch part = whole;
  const ModuleLayout ranks = {layout.tp, layout.pp, layout.cp};
  const BatchFields fields = GetFields(whole.role.module(), place, ranks);
  if (whole.role.module() == v1::MODULE_VISION) {
    if (fields.pixels) return part;
    part.tensors.clear();
    part.vision_max_seqlen = 0;
    part.dummy_image = false;
    return part;
  }
  const auto indices =
      ContextIndices(whole.text.cu_seqlens_padded, {layout.cp, place.cp_rank});
  EXPECT_TRUE(indices.ok()) << indices.status();
  const auto pick = [&](const char* name, auto values, bool received,
                        uint32_t axes = 1) {
    if (!received) return DropTensor(&part, name);
    ReplaceTensor(&part, name, Pick(values, *indices, axes));
  };
  pick("input_ids", whole.Get<int64_t>("input_ids"), fields.input_ids);
  pick("labels", whole.Get<int64_t>("labels"), fields.labels);
  pick("loss_mask", whole.Get<float>("loss_mask"), fields.labels);
  pick("position_ids", whole.Get<int64_t>("position_ids"), true,
       whole.position_axes);
  return part;
}

using Sizes = std::tuple<uint32_t, uint32_t, uint32_t>;

class PlacesTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(PlacesTest, EveryPlaceHasItsPart) {
  Layout layout;
  const TestCluster::Batches whole = BatchesAt(*Start(layout), {});
  ASSERT_EQ(whole.size(), kPlacesSteps * 2 * 4);
  std::tie(layout.tp, layout.pp, layout.cp) = GetParam();
  const auto cluster = Start(layout);
  TrainerPlace place;
  for (place.tp_rank = 0; place.tp_rank < layout.tp; ++place.tp_rank) {
    for (place.pp_rank = 0; place.pp_rank < layout.pp; ++place.pp_rank) {
      for (place.cp_rank = 0; place.cp_rank < layout.cp; ++place.cp_rank) {
        const TestCluster::Batches batches = BatchesAt(*cluster, place);
        ASSERT_EQ(batches.size(), whole.size());
        for (const auto& [key, batch] : batches) {
          const PackedBatch wanted = GetPart(whole.at(key), place, layout);
          EXPECT_EQ(ComputeDigest(batch), ComputeDigest(wanted));
          EXPECT_EQ(batch.totals, wanted.totals);
          EXPECT_EQ(batch.micro_batch_totals, wanted.micro_batch_totals);
          EXPECT_EQ(batch.step_totals, wanted.step_totals);
          EXPECT_EQ(batch.place, place);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, PlacesTest,
                         ::testing::Combine(::testing::Values(1u, 2u, 4u),
                                            ::testing::Values(1u, 2u, 4u),
                                            ::testing::Values(1u, 2u, 4u)));

// Compares sums over the tensors of all context and data-parallel ranks with
// the totals in the batches.
TEST(PlaceTotalsTest, AreTheSumsOverTheTensors) {
  for (const std::string packing :
       {"{align: auto}", "{align: 24}", "{mode: padded}",
        "{mode: padded, row_length: 4096}",
        "{mode: scheduled, max_tokens_per_rank: 1200, virtual_pipeline_group: "
        "2}"}) {
    Layout layout;
    layout.vision_dp = 1;
    layout.cp = 2;
    layout.packing = packing;
    if (packing.find("padded") != std::string::npos) {
      layout.delivery += ", equal_count: true";
    }
    const auto cluster = Start(layout);
    TrainerPlace place;
    std::map<std::tuple<uint64_t, uint32_t>, PackedTotals> micro_batches;
    std::map<std::tuple<uint64_t, uint32_t>, PackedTotals> said;
    std::map<uint64_t, PackedTotals> steps_said;
    std::map<uint64_t, uint32_t> counts;
    for (place.cp_rank = 0; place.cp_rank < layout.cp; ++place.cp_rank) {
      for (const auto& [key, batch] : BatchesAt(*cluster, place)) {
        const auto number = std::make_tuple(batch.step, batch.micro_batch);
        counts[batch.step] =
            std::max(counts[batch.step], batch.micro_batch + 1);
        const auto [entry, is_new] =
            said.emplace(number, batch.micro_batch_totals);
        EXPECT_EQ(entry->second, batch.micro_batch_totals) << "of all ranks";
        steps_said.emplace(batch.step, batch.step_totals);
        EXPECT_EQ(steps_said[batch.step], batch.step_totals);
        PackedTotals& sum = micro_batches[number];
        if (batch.role.module() == v1::MODULE_VISION) {
          if (place.cp_rank > 0) continue;
          sum.patches += batch.vision.cu_seqlens.back();
          sum.images += batch.vision.image_grid_thw.size() / 3;
          continue;
        }
        // Each context rank has its own labels; all else counts whole samples.
        const auto mask = batch.Get<float>("loss_mask");
        sum.label_tokens += static_cast<uint64_t>(
            std::accumulate(mask.begin(), mask.end(), 0.0));
        EXPECT_EQ(batch.Get<int64_t>("input_ids").size(),
                  batch.totals.padded_tokens / layout.cp);
        if (place.cp_rank > 0) continue;
        PackedTotals own;
        own.samples = batch.samples.size();
        for (size_t i = 0; i < own.samples; ++i) {
          const uint64_t real =
              batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i];
          const uint64_t padded = batch.text.cu_seqlens_padded[i + 1] -
                                  batch.text.cu_seqlens_padded[i];
          own.tokens += real;
          own.tokens_squared += real * real;
          own.padded_tokens += padded;
          own.padded_tokens_squared += padded * padded;
        }
        EXPECT_EQ(batch.totals.samples, own.samples);
        EXPECT_EQ(batch.totals.tokens, own.tokens);
        EXPECT_EQ(batch.totals.tokens_squared, own.tokens_squared);
        EXPECT_EQ(batch.totals.padded_tokens, own.padded_tokens);
        EXPECT_EQ(batch.totals.padded_tokens_squared,
                  own.padded_tokens_squared);
        sum += own;
      }
    }
    std::map<uint64_t, PackedTotals> steps;
    for (const auto& [number, sum] : micro_batches) {
      EXPECT_EQ(sum, said[number]) << packing;
      steps[std::get<0>(number)] += sum;
    }
    EXPECT_EQ(steps, steps_said) << packing;
    for (const auto& [step, count] : counts) EXPECT_EQ(count % 2, 0u);
  }
}

std::vector<std::string> GetNames(const TestCluster::Batches& batches,
                                  uint64_t step, uint32_t micro_batch,
                                  v1::Module module, uint32_t first,
                                  uint32_t end) {
  std::vector<std::string> names;
  for (uint32_t rank = first; rank < end; ++rank) {
    const auto& batch =
        batches.at({step, micro_batch, static_cast<int>(module), rank});
    for (const PackedSample& sample : batch.samples) {
      names.push_back(sample.name);
    }
  }
  return names;
}

// If one dp size divides the other, a rank of the smaller holds what its
// partners hold together, in order; otherwise only all ranks together do.
TEST(PairingTest, RanksHoldTheSamplesOfTheirPartners) {
  const std::tuple<uint32_t, uint32_t> sizes[] = {{2, 4}, {4, 2}, {1, 4},
                                                  {4, 4}, {2, 3}, {6, 4}};
  for (const auto& [vision, language] : sizes) {
    Layout layout;
    layout.vision_dp = vision;
    layout.language_dp = language;
    const TestCluster::Batches batches = BatchesAt(*Start(layout), {});
    const uint32_t pairs = std::gcd(vision, language);
    for (uint64_t step = 0; step < kPlacesSteps; ++step) {
      for (uint32_t m = 0; m < 2; ++m) {
        for (uint32_t p = 0; p < pairs; ++p) {
          const uint32_t v = vision / pairs, l = language / pairs;
          EXPECT_EQ(
              GetNames(batches, step, m, v1::MODULE_VISION, p * v, (p + 1) * v),
              GetNames(batches, step, m, v1::MODULE_LANGUAGE, p * l,
                       (p + 1) * l))
              << vision << " " << language << " " << p;
        }
      }
    }
  }
}

// Dynamic context parallelism (packing.dynamic_cp), from drawn texts to the
// batches of ranks that share packs of other sizes, in every delivery.

constexpr uint64_t kRankSteps = 3;
constexpr uint32_t kRanks = 8;
constexpr uint32_t kDynamicCp = 4;
constexpr const char* kTensors[] = {"input_ids", "labels", "position_ids"};

LoadedConfig TextJob(uint32_t dp, const std::string& packing,
                     const std::string& delivery) {
  TestJob job;
  job.sources =
      "{name: mock, format: mock, lengths: {mode: lognormal, min: 20, max: "
      "900, mean: 120, sigma: 1.2, count: 400}}";
  job.model += ", position_axes: 1";
  job.batch = "global: 32, micro: 32, max_tokens: 1000";
  job.modules = absl::StrCat("language: {dp: ", dp, "}");
  job.balance = absl::StrCat("delivery: ", delivery);
  job.more = absl::StrCat("packing: {", packing, "}\n");
  return ParseJob(job, ::testing::TempDir());
}

std::string SharedPacks() {
  return absl::StrCat("mode: scheduled, max_tokens_per_rank: 260, dynamic_cp: ",
                      kDynamicCp);
}

// Samples of images and text, whose images are encoded on the ranks of their
// packs or on others.
LoadedConfig ImageJob(const std::string& delivery) {
  TestJob job;
  job.sources =
      "{name: mock, format: mock, lengths: {mode: lognormal, min: 20, max: "
      "900, mean: 120, sigma: 1.2, count: 400}, images: {max: 2, pixels: {min: "
      "3000, max: 90000, mean: 20000, sigma: 1}}}";
  job.batch = "global: 32, micro: 32, max_tokens: 1000";
  job.modules =
      absl::StrCat("vision: {dp: ", kRanks, "}, language: {dp: ", kRanks, "}");
  job.balance = absl::StrCat("delivery: ", delivery, ", placement: split");
  job.more = absl::StrCat("packing: {", SharedPacks(), "}\n");
  return ParseJob(job, ::testing::TempDir());
}

TestCluster::Batches RunShared(const std::string& delivery, int servers = 1,
                               bool images = false) {
  return RunJob(
      images ? ImageJob(delivery) : TextJob(kRanks, SharedPacks(), delivery),
      kRankSteps, servers);
}

// Of each position its tokens by tensor, with padding.
using Samples = std::map<uint64_t, std::map<std::string, std::vector<int64_t>>>;

Samples WholeSamples() {
  Samples samples;
  const auto batches = RunJob(
      TextJob(1, absl::StrCat("align: ", 2 * kDynamicCp), "off"), kRankSteps);
  for (const auto& [key, batch] : batches) {
    const std::vector<int32_t>& places = batch.text.cu_seqlens_padded;
    for (const char* const name : kTensors) {
      const auto values = batch.Get<int64_t>(name);
      for (size_t i = 0; i < batch.samples.size(); ++i) {
        samples[batch.samples[i].position][name].assign(
            values.begin() + places[i], values.begin() + places[i + 1]);
      }
    }
  }
  return samples;
}

ContextSlice GetShare(const PackedBatch& batch) {
  EXPECT_EQ(batch.pack_share.size(), 2u);
  return {static_cast<uint32_t>(batch.pack_share[0]),
          static_cast<uint32_t>(batch.pack_share[1])};
}

TEST(DynamicCpTest, EachRankHasItsZigZagPartOfEverySampleOfItsPack) {
  const Samples whole = WholeSamples();
  std::map<uint64_t, uint64_t> labels, wanted;  // by step
  std::map<uint64_t, uint32_t> trained;         // by position: its ranks
  std::set<int64_t> sizes;
  for (const auto& [key, batch] : RunShared("exchange")) {
    const ContextSlice slice = GetShare(batch);
    EXPECT_EQ(slice.rank, batch.role.dp_rank() % slice.size);
    sizes.insert(slice.size);
    const std::vector<int32_t>& places = batch.text.cu_seqlens_padded;
    EXPECT_LE(batch.Get<int64_t>("input_ids").size(), 260u);
    for (const char* const name : kTensors) {
      const auto values = batch.Get<int64_t>(name);
      std::vector<int64_t> expected;
      for (size_t i = 0; i < batch.samples.size(); ++i) {
        const auto& sample = whole.at(batch.samples[i].position).at(name);
        ASSERT_EQ(sample.size(), places[i + 1] - places[i]);
        const auto indices =
            ContextIndices({0, places[i + 1] - places[i]}, slice);
        ASSERT_TRUE(indices.ok()) << indices.status();
        for (const int32_t at : *indices) expected.push_back(sample[at]);
      }
      EXPECT_EQ(std::vector<int64_t>(values.begin(), values.end()), expected)
          << name << " of rank " << batch.role.dp_rank();
    }
    for (const PackedSample& sample : batch.samples) {
      ++trained[sample.position];
    }
    const auto mask = batch.Get<float>("loss_mask");
    labels[batch.step] +=
        static_cast<uint64_t>(std::accumulate(mask.begin(), mask.end(), 0.0));
    wanted[batch.step] = batch.step_totals.label_tokens;
    EXPECT_EQ(batch.totals.samples, batch.samples.size());
  }
  // No token is lost or doubled, and packs of several sizes occur.
  EXPECT_EQ(labels, wanted);
  EXPECT_EQ(trained.size(), kRankSteps * 32);
  EXPECT_GE(sizes.size(), 2u);
  EXPECT_LE(*sizes.rbegin(), kDynamicCp);
}

// One row of a tower's output: the sample's position, and the row's number.
using RowName = std::pair<uint64_t, int64_t>;

// The rows of the images of a batch's samples, in their order.
std::vector<RowName> NameRows(const PackedBatch& batch,
                              const std::map<uint64_t, int64_t>& rows) {
  std::vector<RowName> names;
  for (const PackedSample& sample : batch.samples) {
    for (int64_t row = 0; row < rows.at(sample.position); ++row) {
      names.emplace_back(sample.position, row);
    }
  }
  return names;
}

// Each image is encoded once, in the whole cluster, and every rank that shares
// its pack receives its rows, in the order of the pack's placeholders.
TEST(DynamicCpTest, EmbeddingsGoToAllRanksOfAPack) {
  const LoadedConfig config = ImageJob("exchange");
  const int64_t image = config.config.model().token_ids().image();
  const auto batches = RunJob(config, kRankSteps);
  uint64_t repeated = 0;
  for (const auto& [key, first] : batches) {
    const auto [step, number, module, rank] = key;
    if (module != v1::MODULE_VISION || rank != 0) continue;
    const v1::MicroBatchSchedule& columns =
        first.schedule->micro_batches(number);
    const std::vector<uint64_t> patches = SamplePatches(columns);
    std::map<uint64_t, int64_t> rows;
    for (size_t i = 0; i < patches.size(); ++i) {
      rows[columns.position(i)] = patches[i] / 4;
    }
    std::set<uint64_t> encoded;
    std::vector<std::vector<RowName>> received(kRanks);
    int64_t most = 0;
    for (uint32_t r = 0; r < kRanks; ++r) {
      const auto& batch = batches.at({step, number, v1::MODULE_VISION, r});
      for (const PackedSample& sample : batch.samples) {
        EXPECT_TRUE(encoded.insert(sample.position).second);
      }
      const std::vector<RowName> tower = NameRows(batch, rows);
      most = std::max<int64_t>(most, tower.size());
      const auto order = batch.Get<int64_t>("embedding_send_order");
      const EmbeddingPlan& sent =
          FindPlan(batch.embeddings, v1::MODULE_VISION);
      auto next = order.begin();
      for (uint32_t to = 0; to < kRanks; ++to) {
        for (int64_t k = 0; k < sent.send[to]; ++k) {
          received[to].push_back(tower.at(*next++));
        }
      }
      EXPECT_EQ(next, order.end());
      repeated += order.size() - tower.size();
    }
    EXPECT_EQ(encoded.size(), patches.size());
    const int64_t largest =
        *std::max_element(patches.begin(), patches.end()) / 4;
    const int64_t all =
        std::accumulate(patches.begin(), patches.end(), int64_t{0}) / 4;
    EXPECT_LE(most, std::max<int64_t>(largest, 1.1 * all / kRanks));
    for (uint32_t r = 0; r < kRanks; ++r) {
      const auto& batch = batches.at({step, number, v1::MODULE_LANGUAGE, r});
      std::vector<RowName> placed;
      for (const int64_t row : batch.Get<int64_t>("embedding_order")) {
        placed.push_back(received[r].at(row));
      }
      EXPECT_EQ(placed, NameRows(batch, rows));
      const auto ids = batch.Get<int64_t>("pack_input_ids");
      EXPECT_EQ(std::count(ids.begin(), ids.end(), image), placed.size());
    }
  }
  EXPECT_GT(repeated, 0u);
}

TEST(DynamicCpTest, ARankHasIdsAndPositionsOfItsWholePack) {
  std::map<uint64_t, std::vector<int64_t>> samples;  // ids by position
  for (const auto& [key, batch] : RunShared("direct", 1, /*images=*/true)) {
    if (batch.role.module() != v1::MODULE_LANGUAGE) continue;
    const auto indices =
        ContextIndices(batch.text.cu_seqlens_padded, GetShare(batch));
    ASSERT_TRUE(indices.ok()) << indices.status();
    for (const auto& [part, whole, axes] :
         {std::tuple{"input_ids", "pack_input_ids", 1u},
          {"position_ids", "pack_position_ids", 3u}}) {
      const auto found = batch.Get<int64_t>(part);
      EXPECT_EQ(std::vector<int64_t>(found.begin(), found.end()),
                Pick(batch.Get<int64_t>(whole), *indices, axes))
          << whole;
    }
    const auto ids = batch.Get<int64_t>("pack_input_ids");
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const std::vector<int64_t> own(
          ids.begin() + batch.text.cu_seqlens_padded[i],
          ids.begin() + batch.text.cu_seqlens_padded[i + 1]);
      const auto [at, is_new] = samples.emplace(batch.samples[i].position, own);
      EXPECT_EQ(at->second, own) << "of another rank of the pack";
    }
  }
  EXPECT_EQ(samples.size(), kRankSteps * 32);
}

class DeliveriesOfSharedPacksTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(DynamicCp, DeliveriesOfSharedPacksTest,
                         ::testing::Values(false, true), [](const auto& of) {
                           return of.param ? "Images" : "Text";
                         });

TEST_P(DeliveriesOfSharedPacksTest, PackTheSameBytes) {
  // Which rank encodes an image depends on the ranks' servers.
  const TestCluster::Batches of_servers[] = {
      RunShared("direct", 1, GetParam()), RunShared("direct", 2, GetParam())};
  for (const auto& [delivery, servers] : {std::pair{"exchange", 1},
                                          {"hybrid", 1},
                                          {"exchange", 2},
                                          {"hybrid", 2}}) {
    const auto batches = RunShared(delivery, servers, GetParam());
    const TestCluster::Batches& direct = of_servers[servers - 1];
    ASSERT_EQ(batches.size(), direct.size());
    uint64_t moved = 0;
    for (const auto& [key, batch] : batches) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)))
          << delivery << " with " << servers << " servers";
      EXPECT_EQ(batch.pack_share, direct.at(key).pack_share);
      EXPECT_EQ(direct.at(key).bytes_moved, 0u);
      moved += batch.bytes_moved;
    }
    EXPECT_EQ(moved > 0, std::string(delivery) == "exchange" || servers == 2);
  }
}

}  // namespace
}  // namespace ballast
