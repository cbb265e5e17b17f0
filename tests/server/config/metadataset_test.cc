#include "server/config/metadataset.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/config_loader.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MetadatasetTest : public ::testing::Test {
 protected:
  MetadatasetTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/sets");
  }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }

  // "WEIGHT PATH SPLIT_PART", with paths below the folder.
  std::vector<std::string> Read(const std::string& name,
                                const std::string& split = "train") const {
    const auto folders = ReadMetadataset(folder_ + "/" + name, split);
    EXPECT_TRUE(folders.ok()) << folders.status();
    std::vector<std::string> found;
    if (!folders.ok()) return found;
    for (const BlendedPath& each : *folders) {
      found.push_back(absl::StrCat(each.weight, " ",
                                   each.path.substr(folder_.size() + 1), " ",
                                   each.split_part));
    }
    return found;
  }

  std::string Refused(const std::string& text) const {
    Write("bad.yaml", text);
    const auto status =
        ReadMetadataset(folder_ + "/bad.yaml", "train").status();
    EXPECT_FALSE(status.ok()) << text;
    return std::string(status.message());
  }

  const std::string folder_ = ::testing::TempDir() + "/metadataset_test";
};

TEST_F(MetadatasetTest, ReadsVersionOne) {
  Write("v1.yaml", R"(__module__: megatron.energon
__class__: Metadataset
splits:
  train:
    datasets:
      - {weight: 3, path: sets/a, subflavors: {kind: ocr}}
      - {weight: 1, path: sets/b, split_part: extra}
  val:
    datasets: [{path: sets/a}]
)");
  EXPECT_THAT(Read("v1.yaml"),
              ElementsAre("0.75 sets/a train", "0.25 sets/b extra"));
  EXPECT_THAT(Read("v1.yaml", "val"), ElementsAre("1 sets/a val"));
}

// The shares of an inner metadataset are of its own weight.
TEST_F(MetadatasetTest, ReadsVersionTwoAndWhatItNames) {
  Write("sets/inner.yaml", R"(__class__: MetadatasetV2
splits:
  train:
    blend:
      - {path: a, weight: 1}
      - {path: ../b, weight: 4}
  val: {path: a, split_config: other.yaml}
)");
  Write("v2.yaml", R"(__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend:
      - {path: sets/inner.yaml, weight: 0.5}
      - {path: c, weight: 0.5, shuffle_over_epochs_multiplier: 3}
  val: {path: sets/inner.yaml}
)");
  EXPECT_THAT(
      Read("v2.yaml"),
      ElementsAre("0.1 sets/a train", "0.4 sets/../b train", "0.5 c train"));
  EXPECT_THAT(Read("v2.yaml", "val"), ElementsAre("1 sets/a val"));
}

TEST_F(MetadatasetTest, RefusesByNameWhatIsNotDoneHere) {
  const auto in = [](const std::string& split) {
    return absl::StrCat("splits: {train: ", split, "}");
  };
  EXPECT_THAT(Refused(in("{blend_epochized: [{path: a, repetitions: 2}]}")),
              HasSubstr("splits.train.blend_epochized: not done here: write "
                        "`blend`, with weights of repetitions times samples"));
  EXPECT_THAT(Refused(in("{join: [{path: a}], joiner: x}")),
              HasSubstr("splits.train.join: not done here"));
  EXPECT_THAT(Refused(in("{blend: [{path: a, subset: {range: [0%, 5%]}}]}")),
              HasSubstr("splits.train.blend[0].subset: not done here"));
  EXPECT_THAT(Refused(in("{blend: [{path: a, aux: {b: c}}]}")),
              HasSubstr("blend[0].aux: not done here"));
  EXPECT_THAT(Refused(in("{blend: [{path: a.jsonl}]}")),
              HasSubstr("name it as a source of format jsonl"));
  EXPECT_THAT(Refused(in("{blend: [{path: a, wieght: 2}]}")),
              HasSubstr("blend[0].wieght: a key that is not known"));
  EXPECT_THAT(Refused(in("{blend: [{path: a, weight: -1}]}")),
              HasSubstr("blend[0].weight: found -1; wanted a number"));
  EXPECT_THAT(Refused(in("{blend: [{path: a, weight: 0}]}")),
              HasSubstr("the weights sum to 0"));
  EXPECT_THAT(Refused(in("{blend: []}")), HasSubstr("a list of datasets"));
  EXPECT_THAT(Refused(in("{blend: [{weight: 1}]}")),
              HasSubstr("blend[0].path: missing"));
  EXPECT_THAT(Refused("splits: {val: {path: a}}"),
              HasSubstr("splits.train: missing"));
  EXPECT_THAT(Refused("splits: 3"), HasSubstr("wanted a map"));
  EXPECT_THAT(Refused("{"), HasSubstr("not YAML"));
  // One that names itself ends.
  EXPECT_THAT(Refused(in("{path: bad.yaml}")),
              HasSubstr("more than 16 metadatasets inside one another"));
}

TEST_F(MetadatasetTest, BecomesSourcesOfTheConfiguration) {
  Write("all.yaml",
        "splits: {train: {blend: [{path: sets/a.1, weight: 3}, "
        "{path: sets/b, weight: 1}, {path: old/b, weight: 4}]}}");
  const auto loaded = ParseConfig(R"(
sources:
  - {name: nv, format: energon, path: all.yaml, weight: 2,
     energon: {crude: webdataset}}
  - {name: chat, format: jsonl, path: chat.jsonl}
order: {mixture_changes: [{step: 5, weights: {nv: 8, chat: 1}}]}
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)",
                                  "ballast.yaml", folder_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<std::string> sources;
  for (const v1::Source& source : loaded->config.sources()) {
    sources.push_back(
        absl::StrCat(source.name(), " ", source.weight(), " ",
                     std::filesystem::path(source.index()).filename().string(),
                     " ", source.energon().split_part(), " ",
                     static_cast<int>(source.energon().crude())));
  }
  EXPECT_THAT(sources, ElementsAre("nv-a_1 0.75 nv-a_1-*.index train 1",
                                   "nv-b 0.25 nv-b-*.index train 1",
                                   "nv-b-2 1 nv-b-2-*.index train 1",
                                   "chat 1 chat-*.index  0"));
  const auto& weights = loaded->config.order().mixture_changes(0).weights();
  ASSERT_EQ(weights.size(), 4);
  EXPECT_EQ(weights.at("nv-a_1"), 3);
  EXPECT_EQ(weights.at("nv-b"), 1);
  EXPECT_EQ(weights.at("nv-b-2"), 4);
  EXPECT_EQ(weights.at("chat"), 1);
}

TEST_F(MetadatasetTest, FaultsNameTheKeyAndItsLine) {
  const auto loaded = ParseConfig(R"(
sources:
  - name: nv
    format: energon
    path: none.yaml
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)",
                                  "ballast.yaml", folder_);
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("ballast.yaml:5: sources[0].path: "));
}

// The sources of a configuration with `source` alone, or its faults.
std::string LoadSource(const std::string& source,
                       const std::string& more = "") {
  const auto loaded = ParseConfig(
      absl::StrCat("sources: [{name: text, format: megatron, ", source,
                   "}]\nbatch: {global: 2, micro: 2}\n",
                   "topology: {modules: {language: {dp: 2}}}\n", more),
      "ballast.yaml", "/job");
  if (!loaded.ok()) return std::string(loaded.status().message());
  std::string sources;
  for (const v1::Source& each : loaded->config.sources()) {
    absl::StrAppend(&sources, each.name(), " ", each.weight(), " ", each.path(),
                    " ", each.index(), each.blend(), "\n");
  }
  for (const auto& change : loaded->config.order().mixture_changes()) {
    absl::StrAppend(&sources, change.weights().at("text-text"), "\n");
  }
  return sources;
}

TEST(TokenBlendTest, BecomesSourcesOfTheConfiguration) {
  EXPECT_EQ(
      LoadSource("blend: \"3 wiki/text 1  /data/b{0,1}.bin\", weight: 2",
                 "order: {mixture_changes: [{step: 5, weights: {text: 8}}]}"),
      "text-text 1.5 wiki/text /job/.ballast/text-text-*.index\n"
      "text-b_0_1__bin 0.5 /data/b{0,1}.bin "
      "/job/.ballast/text-b_0_1__bin-*.index\n"
      "6\n");
  // Twins, as preprocess_data.py names its files, and a prefix that is a
  // number.
  EXPECT_EQ(LoadSource("blend: 0.5 a/text 0.25 b/text 0.25 7"),
            "text-text 0.5 a/text /job/.ballast/text-text-*.index\n"
            "text-text-2 0.25 b/text /job/.ballast/text-text-2-*.index\n"
            "text-7 0.25 7 /job/.ballast/text-7-*.index\n");
}

TEST(TokenBlendTest, FaultsNameTheEntry) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"blend: 0.5 a b 0.5",
       "ballast.yaml:1: sources[0].blend: entry 1: found b for a weight; "
       "wanted a weight and a prefix in turn"},
      {"blend: 0.5 a 0.5", "entry 1: found the weight 0.5 alone"},
      {"blend: 0.5 a 0 b", "entry 1: found the weight 0; wanted one above 0"},
      {"blend: 0.5 a -1 b", "entry 1: found the weight -1"},
      {"blend: 0.5 a nan b", "entry 1: found nan for a weight"},
      {"blend: a b", "found prefixes without weights"},
      {"blend: a b", "which is one source: path: \"{a,b}\""},
      {"blend: \"  \"", "sources[0].blend: found no prefix"},
      {"blend: \"1 a{b\"", "entry 0: found a{b; wanted a path: "},
      {"blend: 1 a, path: b",
       "sources[0].blend: found with path; wanted one of the two"},
      {"weight: 1", "sources[0].path: missing; wanted the source's files"}};
  for (const auto& [source, message] : refused) {
    EXPECT_THAT(LoadSource(source), HasSubstr(message)) << source;
  }
  const auto other = ParseConfig(
      "sources: [{name: a, format: jsonl, blend: 1 b}]\n"
      "batch: {global: 2, micro: 2}\n"
      "topology: {modules: {language: {dp: 2}}}\n",
      "ballast.yaml", "/job");
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("sources[0].path: missing"));
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("sources[0].blend: found with format: jsonl"));
}

// In a store: paths start at the object, and `..` stays in its bucket.
TEST_F(MetadatasetTest, FollowsPathsBesideAnObject) {
  const std::map<std::string, std::string> objects = {
      {"s3://bucket/sets/blend.yaml",
       "splits: {train: {blend: [{path: nv}, {path: ../other/}, "
       "{path: ../../../top}, {path: \"gs://else/x\"}, {path: /data/disk}, "
       "{path: ./more.yaml, weight: 5}]}}"},
      {"s3://bucket/sets/more.yaml", "splits: {train: {path: deep/folder}}"}};
  const auto folders = ReadMetadataset(
      "s3://bucket/sets/blend.yaml", "train",
      [&](const std::string& path, size_t) -> absl::StatusOr<std::string> {
        const auto found = objects.find(path);
        if (found == objects.end()) return absl::NotFoundError(path);
        return found->second;
      });
  ASSERT_TRUE(folders.ok()) << folders.status();
  std::vector<std::string> paths;
  for (const BlendedPath& each : *folders) {
    paths.push_back(absl::StrCat(each.weight, " ", each.path));
  }
  EXPECT_THAT(
      paths, ElementsAre("0.1 s3://bucket/sets/nv", "0.1 s3://bucket/other",
                         "0.1 s3://bucket/top", "0.1 gs://else/x",
                         "0.1 /data/disk", "0.5 s3://bucket/sets/deep/folder"));
}

}  // namespace
}  // namespace ballast
