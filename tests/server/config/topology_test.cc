#include "server/config/topology.h"

#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Runs = std::vector<std::pair<uint64_t, uint32_t>>;  // step, samples

Runs RunsOf(const std::vector<BatchSize>& sizes) {
  Runs runs;
  for (const BatchSize& size : sizes) {
    if (!runs.empty() && runs.back().second == size.samples) continue;
    runs.push_back({size.first_step, size.samples});
  }
  return runs;
}

Runs RunsOf(const v1::Batch& batch) {
  const auto sizes = BatchSizes(batch);
  EXPECT_TRUE(sizes.ok()) << sizes.status();
  return sizes.ok() ? RunsOf(*sizes) : Runs();
}

v1::Batch GetBatch(uint32_t global) {
  v1::Batch batch;
  batch.set_global(global);
  return batch;
}

void SetRampup(uint32_t start, uint32_t increment, uint64_t samples,
               v1::Batch* batch) {
  batch->mutable_rampup()->set_start(start);
  batch->mutable_rampup()->set_increment(increment);
  batch->mutable_rampup()->set_samples(samples);
}

void AddAtStep(uint64_t step, uint32_t global, v1::Batch* batch) {
  auto* change = batch->add_changes();
  change->set_step(step);
  change->set_global(global);
}

void AddAtSamples(uint64_t samples, uint32_t global, v1::Batch* batch) {
  auto* change = batch->add_changes();
  change->set_samples(samples);
  change->set_global(global);
}

TEST(BatchSizesTest, WithoutChangesThereIsOneSize) {
  EXPECT_THAT(RunsOf(GetBatch(8)), ElementsAre(Pair(0, 8)));
}

// What megatron-core computed, step by step.
TEST(BatchSizesTest, RampsUpLikeMegatron) {
  std::ifstream file("tests/server/config/megatron_rampup.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GE(golden["cases"].size(), 50u);
  for (const auto& each : golden["cases"]) {
    v1::Batch batch = GetBatch(each["global"]);
    SetRampup(each["start"], each["increment"], each["samples"], &batch);
    EXPECT_EQ(RunsOf(batch), each["sizes"].get<Runs>()) << each;
  }
}

// Megatron's thresholds: the size of a step is that of the last threshold which
// the samples before it have reached.
TEST(BatchSizesTest, ChangesBySamplesAreThresholds) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    v1::Batch batch = GetBatch(1 + random() % 20);
    std::vector<std::pair<uint64_t, uint32_t>> thresholds = {
        {0, batch.global()}};
    for (int i = random() % 6; i > 0; --i) {
      const uint64_t threshold = thresholds.back().first + 1 + random() % 90;
      const uint32_t global = 1 + random() % 40;
      thresholds.push_back({threshold, global});
      AddAtSamples(threshold, global, &batch);
    }
    Runs wanted;
    uint64_t consumed = 0;
    for (uint64_t step = 0; step < 600; ++step) {
      uint32_t size = 0;
      for (const auto& [threshold, global] : thresholds) {
        if (consumed >= threshold) size = global;
      }
      if (wanted.empty() || wanted.back().second != size) {
        wanted.push_back({step, size});
      }
      consumed += size;
    }
    EXPECT_EQ(RunsOf(batch), wanted) << batch.DebugString();
  }
}

TEST(BatchSizesTest, TheFirstChangeEndsTheRampup) {
  v1::Batch batch = GetBatch(64);
  SetRampup(16, 16, 300, &batch);
  EXPECT_THAT(RunsOf(batch), ElementsAre(Pair(0, 16), Pair(7, 32), Pair(10, 48),
                                         Pair(12, 64)));
  AddAtStep(9, 32, &batch);
  EXPECT_THAT(RunsOf(batch), ElementsAre(Pair(0, 16), Pair(7, 32)));
  AddAtStep(1000, 128, &batch);
  EXPECT_THAT(RunsOf(batch),
              ElementsAre(Pair(0, 16), Pair(7, 32), Pair(1000, 128)));
}

TEST(BatchSizesTest, SamplesBeforeAddsUp) {
  v1::Batch batch = GetBatch(64);
  SetRampup(16, 16, 300, &batch);
  AddAtStep(20, 8, &batch);
  AddAtSamples(1000, 24, &batch);
  const auto sizes = *BatchSizes(batch);
  uint64_t samples = 0;
  for (uint64_t step = 0; step < 200; ++step) {
    EXPECT_EQ(SamplesBefore(sizes, step), samples) << step;
    samples += SizeAt(sizes, step).samples;
  }
}

TEST(BatchSizesTest, RefusesPointsThatDoNotAscend) {
  v1::Batch steps = GetBatch(8);
  AddAtStep(10, 16, &steps);
  AddAtStep(10, 8, &steps);
  EXPECT_THAT(std::string(BatchSizes(steps).status().message()),
              HasSubstr("found step 10; wanted a point after the "
                        "preceding entry's, step 10"));
  // Step 10 begins after 80 samples.
  for (const uint64_t threshold : {3, 73, 80}) {
    v1::Batch samples = GetBatch(8);
    AddAtStep(10, 16, &samples);
    AddAtSamples(threshold, 8, &samples);
    EXPECT_FALSE(BatchSizes(samples).ok()) << threshold;
  }
  v1::Batch thresholds = GetBatch(8);
  AddAtSamples(50, 16, &thresholds);
  AddAtSamples(50, 8, &thresholds);
  EXPECT_FALSE(BatchSizes(thresholds).ok());
}

TEST(BatchSizesTest, RefusesRampupsWithoutAnEvenGrowth) {
  for (const auto& [start, increment] :
       std::vector<std::pair<uint32_t, uint32_t>>{{8, 1}, {9, 1}, {2, 4}}) {
    v1::Batch batch = GetBatch(8);
    SetRampup(start, increment, 10, &batch);
    EXPECT_FALSE(BatchSizes(batch).ok()) << start << " " << increment;
  }
  v1::Batch many = GetBatch(5000);
  SetRampup(1, 1, 10, &many);
  EXPECT_THAT(std::string(BatchSizes(many).status().message()),
              HasSubstr("into at most 4096 parts"));
}

// Every ramp-up that the rules of the fields allow ends, at the sizes' bounds.
TEST(BatchSizesTest, LargestNumbers) {
  v1::Batch batch = GetBatch(1 << 24);
  SetRampup(1, (1 << 24) - 1, 100'000'000'000'000, &batch);
  const auto sizes = *BatchSizes(batch);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[1].first_step, 100'000'000'000'000u);
}

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Config WithDp(uint32_t vision, uint32_t language) {
  v1::Config config;
  auto& modules = *config.mutable_topology()->mutable_modules();
  if (vision != 0) modules["vision"].set_dp(vision);
  if (language != 0) modules["language"].set_dp(language);
  return config;
}

TEST(Grid, IsTheLeastCommonMultiple) {
  EXPECT_EQ(Grid(WithDp(1, 1).topology()), 1u);
  EXPECT_EQ(Grid(WithDp(1, 2).topology()), 2u);
  EXPECT_EQ(Grid(WithDp(4, 2).topology()), 4u);
  EXPECT_EQ(Grid(WithDp(2, 3).topology()), 6u);
  EXPECT_EQ(Grid(WithDp(0, 8).topology()), 8u);
  EXPECT_EQ(Grid(WithDp(65536, 65535).topology()), 65536u * 65535u);
}

TEST(Modules, VisionComesFirst) {
  EXPECT_THAT(Modules(WithDp(2, 4)),
              ElementsAre(v1::MODULE_VISION, v1::MODULE_LANGUAGE));
  EXPECT_THAT(Modules(WithDp(0, 4)), ElementsAre(v1::MODULE_LANGUAGE));
}

TEST(DpSize, IsZeroForAModuleThatIsNotConfigured) {
  EXPECT_EQ(DpSize(WithDp(2, 4), v1::MODULE_VISION), 2u);
  EXPECT_EQ(DpSize(WithDp(2, 4), v1::MODULE_LANGUAGE), 4u);
  EXPECT_EQ(DpSize(WithDp(0, 4), v1::MODULE_VISION), 0u);
}

// Expected values from Megatron-LM's datasets.
TEST(PackAlign, FollowsContextAndSequenceParallelism) {
  struct Case {
    uint32_t cp, tp;
    bool sequence_parallel;
    uint32_t want;
  };
  for (const Case& c :
       {Case{1, 1, false, 1}, Case{1, 4, false, 1}, Case{1, 4, true, 4},
        Case{2, 4, false, 4}, Case{2, 2, true, 8}, Case{4, 4, true, 32}}) {
    v1::Config config = WithDp(1, 1);
    auto& language =
        (*config.mutable_topology()->mutable_modules())["language"];
    language.set_cp(c.cp);
    language.set_tp(c.tp);
    language.set_sequence_parallel(c.sequence_parallel);
    EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), c.want)
        << c.cp << " " << c.tp << " " << c.sequence_parallel;
    EXPECT_EQ(PackAlign(config, v1::MODULE_VISION), 1u);
    config.mutable_packing()->set_align(16);
    EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), 16u);
  }
}

TEST(PackAlign, LetsAllRanksThatMayShareAPackCutASample) {
  v1::Config config = WithDp(1, 8);
  v1::Packing& packing = *config.mutable_packing();
  packing.set_max_tokens_per_rank(1000);
  packing.set_dynamic_cp(8);
  const v1::Topology::Module& language = *FindLanguage(config);
  // Only of mode `scheduled`.
  EXPECT_EQ(DynamicCp(config), 1u);
  EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), 1u);
  packing.set_mode(v1::Packing::MODE_SCHEDULED);
  EXPECT_EQ(DynamicCp(config), 8u);
  EXPECT_EQ(PackAlign(config, v1::MODULE_LANGUAGE), 16u);
  EXPECT_EQ(PackAlign(config, v1::MODULE_VISION), 1u);
  EXPECT_EQ(PackCapacity(config, language), 8000u);
}

TEST(FindServerOfRank, FollowsTheListsOfTheServers) {
  v1::Config config = WithDp(4, 2);
  config.mutable_topology()->add_servers();
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_VISION), ElementsAre());
  config.mutable_topology()->clear_servers();
  for (const char* ranks : {"0,3", "1-2"}) {
    auto& server = *config.mutable_topology()->add_servers();
    (*server.mutable_ranks())["vision"] = ranks;
  }
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_VISION),
              ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(*FindServerOfRank(config, v1::MODULE_LANGUAGE),
              ElementsAre(0, 0));
  (*config.mutable_topology()->mutable_servers(1)->mutable_ranks())["vision"] =
      "1-4";
  EXPECT_EQ(
      FindServerOfRank(config, v1::MODULE_VISION).status(),
      absl::InvalidArgumentError("topology.servers[1].ranks.vision: found "
                                 "rank 4; wanted ranks below 4"));
}

TEST(FindServer, MatchesTheListenAddresses) {
  v1::Config config;
  config.mutable_topology()->add_servers()->set_address("unix:/a");
  EXPECT_EQ(FindServer(config, {"127.0.0.1:0"}).value(), 0u);
  config.mutable_topology()->add_servers()->set_address("node-b:7070");
  EXPECT_EQ(FindServer(config, {"unix:/z", "node-b:7070"}).value(), 1u);

  const absl::Status none = FindServer(config, {"unix:/z"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("unix:/z"), HasSubstr("unix:/a, node-b:7070")));
  EXPECT_EQ(FindServer(config, {"unix:/a", "node-b:7070"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

using ::testing::IsEmpty;

TEST(ParseRankList, ReadsRanksAndRanges) {
  EXPECT_THAT(ParseRankList("").value(), IsEmpty());
  EXPECT_THAT(ParseRankList(" ").value(), IsEmpty());
  EXPECT_THAT(ParseRankList("7").value(), ElementsAre(7));
  EXPECT_THAT(ParseRankList("0-3,6").value(), ElementsAre(0, 1, 2, 3, 6));
  EXPECT_THAT(ParseRankList(" 6 , 0 - 1 ").value(), ElementsAre(0, 1, 6));
  EXPECT_THAT(ParseRankList("5-5").value(), ElementsAre(5));
  EXPECT_EQ(ParseRankList("0-1048575").value().size(), size_t{1} << 20);
}

TEST(ParseRankList, NamesTheFault) {
  struct Case {
    const char* text;
    const char* culprit;
  };
  for (const Case& c :
       {Case{"0-3,x", "\"x\""}, Case{"1,", "\"\""}, Case{",", "\"\""},
        Case{"-1", "\"\""}, Case{"+1", "\"+1\""}, Case{"1-", "\"\""},
        Case{"1-2-3", "\"2-3\""}, Case{"1.5", "\"1.5\""},
        Case{"3-1", "3-1 falls"}, Case{"0-3,2", "rank 2 occurs twice"},
        Case{"1048576", "1048576"}, Case{"0-99999999999", "99999999999"},
        Case{"a\nb", "a\\nb"}}) {
    const auto ranks = ParseRankList(c.text);
    EXPECT_EQ(ranks.status().code(), absl::StatusCode::kInvalidArgument)
        << c.text;
    EXPECT_THAT(std::string(ranks.status().message()), HasSubstr(c.culprit));
  }
}

TEST(FormatRankList, JoinsRanges) {
  EXPECT_EQ(FormatRankList({}), "");
  EXPECT_EQ(FormatRankList({0}), "0");
  EXPECT_EQ(FormatRankList({0, 1, 2, 3, 6}), "0-3,6");
  EXPECT_EQ(FormatRankList({1, 3, 4}), "1,3-4");
}

}  // namespace
}  // namespace ballast
