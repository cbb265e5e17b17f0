// Keys of `balance` whose values depend on other keys or files, and quoted
// sizes.

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<LoadedConfig> Parse(const std::string& topology,
                                   const std::string& rest,
                                   const std::string& directory = ".") {
  return ParseConfig(
      absl::StrCat("sources: [{name: a, format: jsonl, path: a.jsonl}]\n"
                   "batch: {global: 8, micro: 4}\n"
                   "topology: {modules: {vision: {dp: 2}, language: {dp: 4}}",
                   topology, "}\n", rest),
      "F", directory);
}

v1::Config Load(const std::string& topology, const std::string& rest,
                const std::string& directory = ".") {
  const auto loaded = Parse(topology, rest, directory);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->config : v1::Config();
}

TEST(ObjectiveTest, TheDefaultFollowsTheTopologyAndTheAlgorithm) {
  const auto objective = [](const char* topology, const char* balance) {
    return Load(topology, balance).balance().objective();
  };
  const char* const apart = ", colocated: false";
  EXPECT_EQ(objective("", ""), v1::Balance::OBJECTIVE_SUM);
  EXPECT_EQ(objective(apart, ""), v1::Balance::OBJECTIVE_PHASES);
  EXPECT_EQ(objective(apart, "balance: {algorithm: lpt}"),
            v1::Balance::OBJECTIVE_SUM);
  // Packs are filled by their tokens alone.
  EXPECT_EQ(objective(apart, "packing: {mode: scheduled}"),
            v1::Balance::OBJECTIVE_SUM);
  EXPECT_EQ(objective(apart, "balance: {objective: sum}"),
            v1::Balance::OBJECTIVE_SUM);
  EXPECT_EQ(objective("", "balance: {objective: phases}"),
            v1::Balance::OBJECTIVE_PHASES);
}

TEST(PlacementTest, IsPairedUnlessSplitIsAskedFor) {
  EXPECT_EQ(Load("", "").balance().placement(), v1::Balance::PLACEMENT_PAIRED);
  const auto split = [](const char* rest) {
    return ParseConfig(
        absl::StrCat("sources: [{name: a, format: jsonl, path: a.jsonl}]\n"
                     "batch: {global: 8, micro: 4}\n"
                     "topology: {modules: {vision: {dp: 2, cp: 2}, "
                     "language: {dp: 2, tp: 2, pp: 3, cp: 2}}}\n",
                     rest),
        "F", ".");
  };
  const auto loaded =
      split("balance: {placement: split, cost: {language: {linear: 1}}}");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.balance().placement(), v1::Balance::PLACEMENT_SPLIT);
  // Modules on ranks of their own have any sizes.
  const auto apart = ParseConfig(
      "sources: [{name: a, format: jsonl, path: a.jsonl}]\n"
      "batch: {global: 12, micro: 6}\n"
      "topology: {colocated: false, modules: {vision: {dp: 3, tp: 2}, "
      "language: {dp: 2, pp: 2}}}\n"
      "balance: {placement: split, cost: {language: {linear: 1}}}",
      "F", ".");
  EXPECT_TRUE(apart.ok()) << apart.status();
  // Packs and rows are even without language's costs, and `off` moves nothing.
  for (const char* rest :
       {"balance: {placement: split}\npacking: {mode: scheduled}\n",
        "balance: {placement: split, equal_count: true}\n"
        "packing: {mode: padded}\n",
        "balance: {placement: split, delivery: off}\n"}) {
    EXPECT_TRUE(split(rest).ok()) << split(rest).status();
  }
}

class ModelCostFileTest : public ::testing::Test {
 protected:
  ModelCostFileTest() : directory_(std::getenv("TEST_TMPDIR")) {
    std::ofstream(directory_ + "/config.json") << R"({"model_type": "qwen2_vl",
      "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "intermediate_size": 16, "vocab_size": 100,
      "vision_config": {"depth": 3, "embed_dim": 4, "hidden_size": 8,
        "mlp_ratio": 4, "patch_size": 14, "spatial_merge_size": 2}})";
  }
  const std::string directory_;
};

// Two layers of 8*8*2 + 8*4*2 + 3*8*16 = 576 each, and an output layer of
// 8*100.
constexpr double kLanguageLinear = 6e-9 * (2 * 576 + 800);
constexpr double kLanguageQuadratic = 6e-9 * 2 * 8;
constexpr double kVisionQuadratic = 6e-9 * 3 * 2 * 4;

TEST_F(ModelCostFileTest, CoefficientsAreComputedAtLoad) {
  const v1::Balance::Cost cost =
      Load("", "balance: {cost: {model: .}}", directory_).balance().cost();
  EXPECT_EQ(cost.model(), "");
  EXPECT_DOUBLE_EQ(cost.language().linear(), kLanguageLinear);
  EXPECT_DOUBLE_EQ(cost.language().quadratic(), kLanguageQuadratic);
  EXPECT_DOUBLE_EQ(cost.vision().quadratic(), kVisionQuadratic);
}

TEST_F(ModelCostFileTest, GivenCoefficientsWin) {
  const v1::Balance balance =
      Load("",
           absl::StrCat("balance: {cost: {model: ", directory_,
                        ", vision: {linear: 0}, language: {quadratic: 2}}, "
                        "cost_changes: [{step: 5, cost: {model: .}}]}"),
           directory_)
          .balance();
  EXPECT_EQ(balance.cost().vision().linear(), 0);
  EXPECT_DOUBLE_EQ(balance.cost().vision().quadratic(), kVisionQuadratic);
  EXPECT_DOUBLE_EQ(balance.cost().language().linear(), kLanguageLinear);
  EXPECT_EQ(balance.cost().language().quadratic(), 2);
  const v1::Balance::Cost& changed = balance.cost_changes(0).cost();
  EXPECT_EQ(changed.model(), "");
  EXPECT_DOUBLE_EQ(changed.language().quadratic(), kLanguageQuadratic);
}

TEST_F(ModelCostFileTest, AFileOfAnotherModelIsAFault) {
  std::ofstream(directory_ + "/config.json") << "{\"model_type\": \"bert\"}";
  EXPECT_THAT(std::string(Parse("", "balance: {cost: {model: .}}", directory_)
                              .status()
                              .message()),
              AllOf(HasSubstr("F:4: balance.cost.model: "),
                    HasSubstr("/config.json: model_type: found \"bert\"")));
}

TEST(QuotedSizeTest, SizesMayBeQuoted) {
  EXPECT_EQ(Load("", "serve: {memory: \"1GiB\"}").serve().memory(),
            uint64_t{1} << 30);
  EXPECT_EQ(Load("", "serve: {memory: '512MiB'}").serve().memory(),
            uint64_t{512} << 20);
  // Other numbers may not be quoted.
  EXPECT_FALSE(Parse("", "serve: {prefetch_steps: \"4\"}").ok());
}

}  // namespace
}  // namespace ballast
