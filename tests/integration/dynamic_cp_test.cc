// Dynamic context parallelism (packing.dynamic_cp), from drawn texts to the
// batches of ranks that share packs of other sizes, in every delivery.

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {
namespace {

constexpr uint64_t kSteps = 3;
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

TestCluster::Batches RunShared(const std::string& delivery, int servers = 1) {
  return RunJob(TextJob(kRanks,
                        absl::StrCat("mode: scheduled, max_tokens_per_rank: "
                                     "260, dynamic_cp: ",
                                     kDynamicCp),
                        delivery),
                kSteps, servers);
}

// Of each position its tokens by tensor, with padding.
using Samples = std::map<uint64_t, std::map<std::string, std::vector<int64_t>>>;

Samples WholeSamples() {
  Samples samples;
  const auto batches = RunJob(
      TextJob(1, absl::StrCat("align: ", 2 * kDynamicCp), "off"), kSteps);
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

TEST(DynamicCpTest, EachRankHasItsZigZagPartOfEverySampleOfItsPack) {
  const Samples whole = WholeSamples();
  std::map<uint64_t, uint64_t> labels, wanted;  // by step
  std::map<uint64_t, uint32_t> trained;         // by position: its ranks
  std::set<int64_t> sizes;
  for (const auto& [key, batch] : RunShared("exchange")) {
    ASSERT_EQ(batch.pack_share.size(), 2u);
    const ContextSlice slice = {static_cast<uint32_t>(batch.pack_share[0]),
                                static_cast<uint32_t>(batch.pack_share[1])};
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
  EXPECT_EQ(trained.size(), kSteps * 32);
  EXPECT_GE(sizes.size(), 2u);
  EXPECT_LE(*sizes.rbegin(), kDynamicCp);
}

TEST(DynamicCpTest, AllDeliveriesPackTheSameBytes) {
  const auto direct = RunShared("direct");
  for (const auto& [delivery, servers] : {std::pair{"exchange", 1},
                                          {"hybrid", 1},
                                          {"exchange", 2},
                                          {"hybrid", 2}}) {
    const auto batches = RunShared(delivery, servers);
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
