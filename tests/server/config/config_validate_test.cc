#include "server/config/config_validate.h"

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/config/config_loader.h"
#include "server/settings/source_fields.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseConfiguredAddressTest, WantsAbsolutePaths) {
  EXPECT_EQ(ParseConfiguredAddress("unix:/run/a.sock").value().path,
            "/run/a.sock");
  EXPECT_TRUE(ParseConfiguredAddress("unix:/" + std::string(106, 'a')).ok());
  for (const std::string& text :
       {std::string("unix:a.sock"), std::string("unix:"),
        "unix:/" + std::string(107, 'a')}) {
    EXPECT_THAT(
        std::string(ParseConfiguredAddress(text).status().message()),
        HasSubstr("; wanted unix: and an absolute path of at most 107 bytes"));
  }
}

TEST(ParseConfiguredAddressTest, SaysWhatWasFoundAndWanted) {
  EXPECT_EQ(ParseConfiguredAddress("10.0.0.1:7070").value().port, 7070);
  EXPECT_EQ(
      ParseConfiguredAddress("node").status(),
      absl::InvalidArgumentError("found node; wanted unix:/path or host:port"));
}

// The status of serve.http at `text` with these settings.
absl::Status HttpAt(const std::string& text, const v1::Security& security) {
  return CheckHttpExposure(ParseConfiguredAddress(text).value(), text,
                           security);
}

TEST(CheckHttpExposureTest, LoopbackIsAlwaysAllowed) {
  v1::Security tokens;
  tokens.set_tokens_file("tokens");
  for (const char* text : {"127.0.0.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(HttpAt(text, {}).ok()) << text;
    EXPECT_TRUE(HttpAt(text, tokens).ok()) << text;
  }
}

TEST(CheckHttpExposureTest, OtherMachinesWantTlsAndAProof) {
  for (const char* text : {"0.0.0.0:1", "[::]:1", "node-a:1"}) {
    v1::Security security;
    EXPECT_THAT(std::string(HttpAt(text, security).message()),
                HasSubstr("security.tls, since other machines reach it"));
    security.mutable_tls()->set_cert("cert.pem");
    EXPECT_THAT(std::string(HttpAt(text, security).message()),
                HasSubstr("client_ca or security.tokens_file"));
    v1::Security tokens = security;
    tokens.set_tokens_file("tokens");
    EXPECT_TRUE(HttpAt(text, tokens).ok()) << text;
    security.mutable_tls()->set_client_ca("ca.pem");
    EXPECT_TRUE(HttpAt(text, security).ok()) << text;
    v1::Security insecure;
    insecure.set_insecure(true);
    EXPECT_TRUE(HttpAt(text, insecure).ok()) << text;
  }
}

TEST(CheckHttpExposureTest, HasNoUnixSocket) {
  EXPECT_THAT(std::string(HttpAt("unix:/a", {}).message()),
              HasSubstr("wanted host:port"));
}

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

// As JSON writes it.
TEST(QuotedSizeTest, TheWordForZeroMayBeQuoted) {
  EXPECT_EQ(Load("", "packing: {\"align\": \"auto\"}").packing().align(), 0u);
  EXPECT_EQ(Load("", "serve: {\"threads\": \"auto\"}").serve().threads(), 0u);
  EXPECT_EQ(Load("", "serve: {recipe_processes: 'auto'}")
                .serve()
                .recipe_processes(),
            0u);
  EXPECT_FALSE(Parse("", "serve: {threads: \"automatic\"}").ok());
}

// model.video as the configuration gives it. faults.txt has what is refused.

using Video = v1::Model::Video;

v1::Model ModelOf(const std::string& model) {
  const auto loaded = ParseConfig(
      absl::StrCat(
          "sources: [{name: docs, format: webdataset, path: 'docs-*.tar'}]\n"
          "batch: {global: 8, micro: 4}\n"
          "topology: {modules: {vision: {dp: 2}, language: {}}}\n"
          "model: {",
          model, "}\n"),
      "F", "/etc/ballast");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->config.model() : v1::Model();
}

TEST(VideoConfigTest, ReadsEveryKey) {
  const Video utils =
      ModelOf(
          "video: {sampling: qwen_vl_utils, fps: 1.5, min_frames: 6, "
          "max_frames: 64, min_pixels: 3136, max_pixels: 200704, "
          "total_pixels: 10000000}")
          .video();
  EXPECT_EQ(utils.sampling(), Video::SAMPLING_QWEN_VL_UTILS);
  EXPECT_EQ(utils.fps(), 1.5);
  EXPECT_EQ(utils.min_frames(), 6u);
  EXPECT_EQ(utils.max_frames(), 64u);
  EXPECT_EQ(utils.min_pixels(), 3136u);
  EXPECT_EQ(utils.max_pixels(), 200704u);
  EXPECT_EQ(utils.total_pixels(), 10000000u);
  EXPECT_FALSE(utils.cap_pixels_per_frame());
  const Video by_class =
      ModelOf(
          "profile: qwen3_vl, video: {sampling: transformers, "
          "cap_pixels_per_frame: true}")
          .video();
  EXPECT_EQ(by_class.sampling(), Video::SAMPLING_TRANSFORMERS);
  EXPECT_TRUE(by_class.cap_pixels_per_frame());
}

TEST(VideoConfigTest, WhatIsLeftOutIsTheRulesDefault) {
  EXPECT_FALSE(ModelOf("profile: qwen2_vl").has_video());
  const Video one = ModelOf("video: {max_frames: 9}").video();
  EXPECT_EQ(one.max_frames(), 9u);
  EXPECT_EQ(one.fps(), 0);
  EXPECT_EQ(one.min_frames(), 0u);
  EXPECT_EQ(one.max_pixels(), 0u);
}

TEST(VideoConfigTest, InternVlTakesTheKeysOfItsRules) {
  const std::string intern = "profile: internvl3, tokenizer: t.json, video: ";
  EXPECT_EQ(ModelOf(absl::StrCat(intern, "{min_frames: 4, max_frames: 16}"))
                .video()
                .max_frames(),
            16u);
  EXPECT_EQ(ModelOf(absl::StrCat(intern, "{sampling: transformers, fps: 1}"))
                .video()
                .fps(),
            1);
}

TEST(VideoConfigTest, LlavaOneVisionTakesFramesASecond) {
  const Video video =
      ModelOf(
          "profile: llava_onevision, tokenizer: t.json, video: {fps: 1, "
          "max_frames: 32}")
          .video();
  EXPECT_EQ(video.fps(), 1);
  EXPECT_EQ(video.max_frames(), 32u);
}

// Its images are LLaVA-OneVision's; docs/video.md has this line.
TEST(VideoConfigTest, LlavaVideoTakesItsTrainingCodesArguments) {
  const v1::Model model = ModelOf(
      "profile: llava_video, tokenizer: t.json, video: {max_frames: 64, "
      "force_sample: true, time_instruction: true, pool: average, newline: "
      "one_token}");
  const Video& video = model.video();
  EXPECT_EQ(video.max_frames(), 64u);
  EXPECT_TRUE(video.force_sample());
  EXPECT_TRUE(video.time_instruction());
  EXPECT_EQ(video.pool(), Video::POOL_AVERAGE);
  EXPECT_EQ(video.newline(), Video::NEWLINE_ONE_TOKEN);
  EXPECT_EQ(model.chat_template(), "llava_video");
  EXPECT_EQ(model.image_family().name(), "llava_onevision");
  EXPECT_EQ(model.mean(0), 0.5);
}

// Runs every case of faults.txt; the head of that file describes its format.

struct FaultCase {
  std::string name;
  std::string yaml;
  std::vector<std::string> faults;
};

std::vector<FaultCase> ReadCases() {
  std::ifstream file("tests/server/config/faults.txt");
  EXPECT_TRUE(file.is_open());
  std::vector<FaultCase> cases;
  bool in_yaml = false;
  std::string line;
  while (std::getline(file, line)) {
    if (absl::StartsWith(line, "=== ")) {
      cases.push_back({line.substr(4), "", {}});
      in_yaml = true;
    } else if (cases.empty()) {
      continue;  // the head
    } else if (line == "---") {
      in_yaml = false;
    } else if (!in_yaml) {
      if (!line.empty()) cases.back().faults.push_back(line);
    } else if (line == "SOURCES") {
      cases.back().yaml +=
          "sources: [{name: a, format: jsonl, path: a.jsonl}]\n";
    } else if (line == "BATCH") {
      cases.back().yaml += "batch: {global: 8, micro: 4}\n";
    } else if (line == "TOPOLOGY") {
      cases.back().yaml +=
          "topology: {modules: {vision: {dp: 2}, language: {dp: 4}}}\n";
    } else {
      absl::StrAppend(&cases.back().yaml, line, "\n");
    }
  }
  return cases;
}

TEST(ConfigFaults, ReportsEveryFault) {
  const std::vector<FaultCase> cases = ReadCases();
  EXPECT_GE(cases.size(), 30u);
  for (const FaultCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto loaded = ParseConfig(c.yaml, "F", "DIR");
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
    std::vector<std::string> faults;
    for (const absl::string_view line :
         absl::StrSplit(loaded.status().message(), '\n')) {
      EXPECT_TRUE(absl::StartsWith(line, "F:")) << line;
      faults.emplace_back(line.substr(2));
    }
    EXPECT_THAT(faults, testing::ElementsAreArray(c.faults));
  }
}

TEST(RowFilterTest, ComparesNumbers) {
  struct Case {
    const char* filter;
    bool below, equal, above;  // a value of 2, 3 and 4 passes
  };
  for (const Case& c : {Case{"a==3", false, true, false},
                        {" a != 3 ", true, false, true},
                        {"a <3", true, false, false},
                        {"a<= 3.0", true, true, false},
                        {"a>3", false, false, true},
                        {"a >= 3e0", false, true, true}}) {
    const auto filter = ParseRowFilter(c.filter);
    ASSERT_TRUE(filter.ok()) << filter.status();
    EXPECT_EQ(filter->column, "a");
    EXPECT_FALSE(filter->is_text);
    EXPECT_EQ(filter->Passes(2), c.below) << c.filter;
    EXPECT_EQ(filter->Passes(3), c.equal) << c.filter;
    EXPECT_EQ(filter->Passes(4), c.above) << c.filter;
    EXPECT_FALSE(filter->Passes("3"));
  }
  // NaN is unequal to everything, and in no order.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(ParseRowFilter("a >= 0")->Passes(nan));
  EXPECT_TRUE(ParseRowFilter("a != 0")->Passes(nan));
}

TEST(RowFilterTest, ComparesTexts) {
  const auto filter = ParseRowFilter("the source != \"a <= b\"");
  ASSERT_TRUE(filter.ok()) << filter.status();
  EXPECT_EQ(filter->column, "the source");
  EXPECT_TRUE(filter->is_text);
  EXPECT_EQ(filter->text, "a <= b");
  EXPECT_TRUE(filter->Passes("a"));
  EXPECT_FALSE(filter->Passes("a <= b"));
  EXPECT_FALSE(filter->Passes(1));
  EXPECT_TRUE(ParseRowFilter("s > \"a\"")->Passes("b"));
  EXPECT_TRUE(ParseRowFilter("s == \"\"")->Passes(""));
}

// Doubles hold them as their neighbours, which would pass as well.
TEST(RowFilterTest, LargeNumbersHaveAnOrderAlone) {
  EXPECT_TRUE(ParseRowFilter("id == 9007199254740991")->Passes(0x1p53 - 1));
  EXPECT_TRUE(ParseRowFilter("time >= 1700000000000000000")->Passes(1.8e18));
}

TEST(RowFilterTest, RefusesOthers) {
  for (const char* filter :
       {"", "a", "a 3", "== 3", "a = 3", "a ! 3", "a >=", "a >= b", "a == 'b'",
        "a == \"b", "a == \"", "a == \"b\"c\"", "a > inf", "a > nan", "a => 3",
        "a >= 1e999", "id == 9007199254740993", "id != -9007199254740993"}) {
    const auto parsed = ParseRowFilter(filter);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << filter;
  }
  for (const char* filter : {"ok == true", "ok != False"}) {
    const absl::Status status = ParseRowFilter(filter).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("1 for true and 0 for false"));
  }
}

}  // namespace
}  // namespace ballast
