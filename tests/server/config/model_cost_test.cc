#include "server/config/model_cost.h"

#include <cmath>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// The keys of the released checkpoints that the costs depend on.
constexpr char kQwen25Vl3B[] = R"({
  "model_type": "qwen2_5_vl", "hidden_size": 2048, "num_hidden_layers": 36,
  "num_attention_heads": 16, "num_key_value_heads": 2,
  "intermediate_size": 11008, "vocab_size": 151936,
  "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16,
    "in_chans": 3, "intermediate_size": 3420, "out_hidden_size": 2048,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}})";
constexpr char kQwen25Vl7B[] = R"({
  "model_type": "qwen2_5_vl", "hidden_size": 3584, "num_hidden_layers": 28,
  "num_attention_heads": 28, "num_key_value_heads": 4,
  "intermediate_size": 18944, "vocab_size": 152064,
  "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16,
    "in_chans": 3, "intermediate_size": 3420, "out_hidden_size": 3584,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]}})";

v1::Balance::Cost CostOf(const std::string& json) {
  const auto cost = ModelCost(json);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return cost.value_or(v1::Balance::Cost());
}

// 6 FLOP per token for each parameter of the matrices. The model cards of
// Qwen2.5-3B and 7B, whose layers these are, publish 2.77 and 6.53 billion
// parameters without embeddings; the output layer has width times vocabulary.
TEST(ModelCostTest, LanguageHasThePublishedParameters) {
  EXPECT_NEAR(CostOf(kQwen25Vl3B).language().linear(),
              6 * (2.77 + 2048 * 151936e-9), 0.005 * 18.5);
  EXPECT_NEAR(CostOf(kQwen25Vl7B).language().linear(),
              6 * (6.53 + 3584 * 152064e-9), 0.005 * 42.4);
}

// Megatron-LM's FLOPs of one layer's attention on a sample of n tokens, forward
// and backward: 3 * 2 * (n*h*(q+k+v) + q*n*n/2*2 + n*q*h).
TEST(ModelCostTest, LanguageCountsAttentionLikeMegatron) {
  const double n = 8192, h = 3584, q = 3584, kv = 512;
  const double attention =
      6 * (n * h * (q + 2 * kv) + q * n * n / 2 * 2 + n * q * h);
  const double mlp = 6 * n * h * 18944 * 3, output = 6 * n * h * 152064;
  const auto language = CostOf(kQwen25Vl7B).language();
  const double flops = 28 * (attention + mlp) + output;
  EXPECT_NEAR(language.linear() * n + language.quadratic() * n * n,
              flops * 1e-9, 1e-9 * flops * 1e-9);
}

// By their shapes, the towers' matrices have 669 (3B) and 677 million
// parameters, published as some 675 million; a quarter of the merger's work
// belongs to each patch. Windowed layers attend to 64 patches, four layers to
// the whole image.
TEST(ModelCostTest, VisionFollowsTheShapesOfTheTower) {
  for (const char* json : {kQwen25Vl3B, kQwen25Vl7B}) {
    const double out = json == kQwen25Vl3B ? 2048 : 3584;
    const double layer = 4 * 1280. * 1280 + 3 * 1280. * 3420;
    const double embedding = 3 * 2 * 14 * 14 * 1280.;
    const double merger = 5120. * 5120 + 5120 * out;
    EXPECT_NEAR(32 * layer + embedding + merger, 675e6, 0.02 * 675e6);
    const double windows = 28 * 2 * 64 * 1280.;
    const auto vision = CostOf(json).vision();
    EXPECT_DOUBLE_EQ(vision.linear(),
                     6e-9 * (32 * layer + embedding + merger / 4 + windows));
    EXPECT_DOUBLE_EQ(vision.quadratic(), 6e-9 * 4 * 2 * 1280);
  }
}

// FLOPs and parameters of Hugging Face's classes at the sizes of the released
// checkpoints, counted by torch (model_flops.json says how).
class CountedFlopsTest : public ::testing::Test {
 protected:
  static const nlohmann::json& Figures(const char* json) {
    static const nlohmann::json* all = [] {
      std::ifstream file("tests/server/config/model_flops.json");
      EXPECT_TRUE(file.is_open());
      return new nlohmann::json(nlohmann::json::parse(file));
    }();
    return all->at(json == kQwen25Vl3B ? "Qwen2.5-VL-3B" : "Qwen2.5-VL-7B");
  }
};

constexpr double kRounding = 1e-12;

// The backward pass takes twice the forward pass, and causal attention half of
// what the classes compute.
TEST_F(CountedFlopsTest, LanguageHasThem) {
  for (const char* json : {kQwen25Vl3B, kQwen25Vl7B}) {
    const nlohmann::json& wanted = Figures(json)["language"];
    const double n = wanted["tokens"];
    const double matrices = 3e-9 * wanted["matrices"].get<double>();
    const double attention =
        3e-9 * wanted["attention_without_causality"].get<double>() / 2;
    const auto language = CostOf(json).language();
    EXPECT_NEAR(language.linear() * n, matrices, kRounding * matrices);
    EXPECT_NEAR(language.quadratic() * n * n, attention, kRounding * attention);
  }
}

TEST_F(CountedFlopsTest, VisionHasThem) {
  for (const char* json : {kQwen25Vl3B, kQwen25Vl7B}) {
    for (const nlohmann::json& wanted : Figures(json)["vision"]) {
      const double n =
          wanted["grid"][1].get<double>() * wanted["grid"][2].get<double>();
      const double flops = 3e-9 * wanted["flops"].get<double>();
      const auto vision = CostOf(json).vision();
      EXPECT_NEAR(vision.linear() * n + vision.quadratic() * n * n, flops,
                  kRounding * flops);
    }
  }
}

// The costs count every parameter but the norms', the biases and the input
// embeddings, which the 3B shares with its output layer: with these, each model
// has as many as its checkpoint.
TEST_F(CountedFlopsTest, CoverAllParametersOfTheCheckpoints) {
  for (const char* json : {kQwen25Vl3B, kQwen25Vl7B}) {
    const bool is_3b = json == kQwen25Vl3B;
    const double layers = is_3b ? 36 : 28, width = is_3b ? 2048 : 3584;
    const double key_value = is_3b ? 256 : 512;
    const double embedding = is_3b ? 0 : 152064. * 3584;
    const double language =
        layers * (2 * width + width + 2 * key_value) + width + embedding;
    const double tower = 32 * (2 * 1280. + 3 * 1280 + 1280 + 2 * 3420 + 1280) +
                         1280 + 5120 + width;
    const auto cost = CostOf(json);
    // A quarter of a merger's work belongs to each patch; windows have no
    // parameters.
    const double merger = 5120 * (5120 + width);
    const double counted = cost.language().linear() / 6e-9 +
                           cost.vision().linear() / 6e-9 + merger * 3 / 4 -
                           28 * 2 * 64 * 1280.;
    EXPECT_EQ(std::round(counted + language + tower),
              Figures(json)["parameters"].get<double>());
  }
}

// The costs in models/ are those of the checkpoints that they name, to four
// digits: of config.json where the formula takes it.
TEST(ModelCostTest, ProfilesHaveTheCostsOfTheirCheckpoints) {
  const auto expect = [](const v1::ModelCost::Coefficients& found,
                         const v1::Balance::Coefficients& wanted) {
    EXPECT_NEAR(found.linear(), wanted.linear(), 1e-3 * wanted.linear());
    EXPECT_NEAR(found.quadratic(), wanted.quadratic(),
                1e-3 * wanted.quadratic());
  };
  const std::pair<const char*, std::string> profiles[] = {
      {"qwen2_5_vl", kQwen25Vl7B},
      {"qwen2_vl", R"({"model_type": "qwen2_vl", "hidden_size": 3584,
        "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "intermediate_size": 18944,
        "vocab_size": 152064, "vision_config": {"depth": 32,
          "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4,
          "patch_size": 14, "spatial_merge_size": 2}})"},
      {"qwen3_vl", R"({"model_type": "qwen3_vl", "text_config": {
        "hidden_size": 4096, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 12288, "vocab_size": 151936},
        "vision_config": {"depth": 27, "hidden_size": 1152,
          "intermediate_size": 4304, "out_hidden_size": 4096, "patch_size": 16,
          "spatial_merge_size": 2, "temporal_patch_size": 2,
          "deepstack_visual_indexes": [8, 16, 24]}})"}};
  for (const auto& [name, json] : profiles) {
    const v1::ModelProfile* profile = FindProfile(name);
    ASSERT_NE(profile, nullptr);
    const v1::Balance::Cost wanted = CostOf(json);
    expect(profile->cost().vision(), wanted.vision());
    expect(profile->cost().language(), wanted.language());
  }
  // A model made of another has no cost by it.
  EXPECT_FALSE(FindProfile("qwen3_5_vl")->has_cost());
}

TEST(ModelCostTest, OtherFamiliesHaveOtherKeys) {
  const auto qwen2 = CostOf(R"({"model_type": "qwen2_vl", "hidden_size": 1536,
      "num_hidden_layers": 28, "num_attention_heads": 12,
      "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936,
      "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 1536,
        "mlp_ratio": 4, "patch_size": 14, "spatial_merge_size": 2}})");
  EXPECT_DOUBLE_EQ(qwen2.vision().quadratic(), 6e-9 * 32 * 2 * 1280);
  EXPECT_DOUBLE_EQ(qwen2.vision().linear(),
                   6e-9 * (32 * 12 * 1280. * 1280 + 1176 * 1280. +
                           (5120. * 5120 + 5120. * 1536) / 4));
  const auto qwen3 = CostOf(R"({"model_type": "qwen3_vl",
      "text_config": {"hidden_size": 2048, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 6144, "vocab_size": 151936},
      "vision_config": {"depth": 24, "hidden_size": 1024, "in_channels": 3,
        "intermediate_size": 4096, "out_hidden_size": 2048, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
        "deepstack_visual_indexes": [5, 11, 17]}})");
  EXPECT_DOUBLE_EQ(qwen3.language().quadratic(), 6e-9 * 28 * 2048);
  // One merger at the end and one for each deep-stack layer.
  EXPECT_DOUBLE_EQ(qwen3.vision().linear(),
                   6e-9 * (24 * 12 * 1024. * 1024 + 1536 * 1024. +
                           4 * (4096. * 4096 + 4096. * 2048) / 4));
}

// Qwen3.5 at the sizes of transformers' default configurations, the dense 9B
// and the 35B of which a token passes 3B. The numbers are of the entries of all
// matrices and convolutions of transformers' classes (5.23), without input
// embeddings, with 8 of 256 experts. The recurrence of a delta net adds four
// products of a head's key and value (Megatron-LM's count).
TEST(ModelCostTest, Qwen35HasTheParametersOfItsClasses) {
  constexpr char kVision[] = R"("vision_config": {"depth": 27,
      "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304,
      "out_hidden_size": 3584, "patch_size": 16, "spatial_merge_size": 2,
      "temporal_patch_size": 2})";
  constexpr char kDeltaNet[] = R"("linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "head_dim": 256, "num_attention_heads": 16, "vocab_size": 248320)";
  const double recurrence = 4 * 32 * 128. * 128;
  const auto dense = CostOf(absl::StrCat(
      R"({"model_type": "qwen3_5", "text_config": {"hidden_size": 4096,
      "intermediate_size": 12288, "num_hidden_layers": 32,
      "num_key_value_heads": 4, )",
      kDeltaNet, "}, ", kVision, "}"));
  EXPECT_DOUBLE_EQ(dense.language().linear(),
                   6e-9 * (7936409600 + 24 * recurrence));
  EXPECT_DOUBLE_EQ(dense.language().quadratic(), 6e-9 * 8 * 4096);
  EXPECT_DOUBLE_EQ(dense.vision().linear(), 6e-9 * (412839936 + 37748736 / 4));
  EXPECT_DOUBLE_EQ(dense.vision().quadratic(), 6e-9 * 27 * 2 * 1152);
  std::string layers;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(
        &layers, i == 0 ? "" : ", ",
        i % 4 == 3 ? R"("full_attention")" : R"("linear_attention")");
  }
  const auto sparse = CostOf(absl::StrCat(
      R"({"model_type": "qwen3_5_moe", "text_config": {"hidden_size": 2048,
      "num_hidden_layers": 40, "num_key_value_heads": 2, "num_experts": 256,
      "num_experts_per_tok": 8, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "layer_types": [)",
      layers, "], ", kDeltaNet, "}, ", kVision, "}"));
  EXPECT_DOUBLE_EQ(sparse.language().linear(),
                   6e-9 * (2946252800 + 30 * recurrence));
  EXPECT_DOUBLE_EQ(sparse.language().quadratic(), 6e-9 * 10 * 4096);
}

TEST(ModelCostTest, NamesTheKeyAtFault) {
  const auto message = [](const std::string& json) {
    const absl::Status status = ModelCost(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(message("{"), HasSubstr("no JSON object"));
  EXPECT_THAT(message(R"({"model_type": "llava"})"), HasSubstr("\"llava\""));
  const auto changed = [&](const char* from, const char* to) {
    return message(absl::StrReplaceAll(kQwen25Vl3B, {{from, to}}));
  };
  EXPECT_THAT(changed("\"vocab_size\": 151936,", ""),
              HasSubstr("vocab_size: found nothing; wanted a whole number"));
  EXPECT_THAT(changed("\"depth\": 32", "\"depth\": 0"),
              HasSubstr("vision_config.depth: found 0"));
  EXPECT_THAT(changed("[7, 15, 23, 31]", "4"),
              HasSubstr("fullatt_block_indexes: found 4; wanted a list"));
}

}  // namespace
}  // namespace ballast
