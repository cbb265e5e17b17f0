// A kind of media that nobody needs, from an index to batches: what one folder,
// one row of the table and one file of a model suffice for.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_file.h"
#include "tests/fakes/test_cluster.h"
#include "tests/server/media/depth/depth_maps.h"

namespace ballast {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kFolder[] = "tests/server/media/depth/";
constexpr uint64_t kPatch = 4;

// 16-bit PNGs that Pillow wrote, with the pixels that it and numpy read of
// them.
const Json& Maps() {
  static const auto& maps = *new Json(
      Json::parse(ReadFile(absl::StrCat(kFolder, "testdata/depth_maps.json"))));
  return maps;
}

std::string FileOf(const Json& map) {
  std::string file;
  EXPECT_TRUE(absl::Base64Unescape(map["png"].get<std::string>(), &file));
  return file;
}

// The pixels in patches, as rows of a batch.
std::vector<float> PatchesOf(const Json& map) {
  const auto pixels = map["pixels"].get<std::vector<uint16_t>>();
  const uint64_t height = map["height"], width = map["width"];
  std::vector<float> rows;
  for (uint64_t i = 0; i < pixels.size(); ++i) {
    const uint64_t patch = i / (kPatch * kPatch),
                   within = i % (kPatch * kPatch);
    const uint64_t y = patch / (width / kPatch) * kPatch + within / kPatch;
    const uint64_t x = patch % (width / kPatch) * kPatch + within % kPatch;
    EXPECT_LT(y, height);
    rows.push_back(pixels[y * width + x]);
  }
  return rows;
}

// A sample as it was written.
struct Seen {
  std::vector<int> maps = {};  // numbers in Maps()
  bool torn = false;           // a sound head, and damaged image data
};

struct DataSet {
  std::string folder;
  std::vector<Seen> samples;  // as the index numbers them
};

const DataSet& Data() {
  static const auto& data = *[] {
    auto* made = new DataSet{::testing::TempDir() + "/depth", {}};
    std::filesystem::create_directories(made->folder);
    const auto write = [&](const std::string& name, const std::string& bytes) {
      std::ofstream(absl::StrCat(made->folder, "/", name), std::ios::binary)
          << bytes;
    };
    for (size_t i = 0; i < Maps().size(); ++i) {
      write(absl::StrCat(i, ".png"), FileOf(Maps()[i]));
    }
    std::string torn = FileOf(Maps()[3]);
    write("torn.png", torn.substr(0, torn.size() / 2));
    write("grey.png", MakeJpeg({.width = 8, .height = 8}));
    write("x.jpg", MakeJpeg({.width = 90, .height = 60}));
    std::filesystem::copy_file(
        absl::StrCat(kFolder, "depth_maps.textproto"),
        made->folder + "/depth_maps.textproto",
        std::filesystem::copy_options::overwrite_existing);
    std::string lines;
    const auto add = [&](const std::string& media,
                         const std::string& question) {
      absl::StrAppend(&lines, "{", media,
                      R"("conversations": [{"from": "human", "value": ")",
                      question, R"("}, {"from": "gpt", "value": "A."}]})",
                      "\n");
    };
    add(R"("depth": "0.png", )", "<depth>How far?");
    add(R"("depths": ["1.png", "2.png"], )", "<depth> or <depth>?");
    add(R"("image": "x.jpg", "depth": "3.png", )", "<image> has <depth>");
    add("", "Words alone.");
    add(R"("depth": "torn.png", )", "<depth>");
    add(R"("image": "x.jpg", )", "<image>");
    add(R"("depth": "4.png", )", "<depth>");
    add(R"("depth": "grey.png", )", "<depth>");  // refused
    add(R"("depth": "0.png", )", "no mark");     // likewise
    made->samples = {{{0}}, {{1, 2}}, {{3}}, {}, {{3}, true}, {}, {{4}}};
    while (made->samples.size() < 16) {
      add("", "Words.");
      made->samples.push_back({});
    }
    write("maps.jsonl", lines);
    return made;
  }();
  return data;
}

LoadedConfig MakeConfig(const std::string& delivery) {
  const auto config = ParseConfig(
      absl::StrCat(
          "sources: [{name: maps, format: jsonl, path: maps.jsonl, media_root: "
          "., max_bad: 1}]\n"
          "model: {profile: depth_maps.textproto, max_pixels: 12544}\n"
          "batch: {global: 16, micro: 8}\n"
          "topology: {modules: {vision: {dp: 2}, depth: {dp: 4}, language: "
          "{dp: 2}}}\n"
          "balance: {delivery: ",
          delivery,
          "}\n"
          "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n"),
      "test.yaml", Data().folder);
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

TestCluster::Batches RunJob(const LoadedConfig& config) {
  const auto cluster = TestCluster::Start(config, /*servers=*/2);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return {};
  auto batches = (*cluster)->RunRanks(0, /*steps=*/2);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return batches.ok() ? *std::move(batches) : TestCluster::Batches();
}

TEST(DepthTest, AFileIsReadAsPillowReadsIt) {
  for (const Json& map : Maps()) {
    const auto pixels = ReadDepthMap(FileOf(map), map["width"], map["height"]);
    ASSERT_TRUE(pixels.ok()) << pixels.status();
    EXPECT_EQ(*pixels, map["pixels"].get<std::vector<uint16_t>>());
  }
  const Json& map = Maps()[1];
  EXPECT_TRUE(IsDataFault(
      ReadDepthMap(FileOf(map), map["height"], map["width"]).status()));
  EXPECT_TRUE(IsDataFault(
      ReadDepthMap(FileOf(map).substr(0, 60), map["width"], map["height"])
          .status()));
}

TEST(DepthTest, ARankOfItsEncoderGetsAllPatches) {
  const LoadedConfig config = MakeConfig("exchange");
  const TestCluster::Batches batches = RunJob(config);
  ASSERT_FALSE(batches.empty());
  std::set<uint64_t> seen;
  int dummies = 0;
  for (const auto& [key, batch] : batches) {
    if (std::get<2>(key) != v1::MODULE_OTHER) continue;
    const auto depth = batch.Get<float>("depth");
    const auto lengths = batch.Get<int64_t>("depth_lengths");
    const auto cu_rows = batch.Get<int32_t>("depth_cu_rows");
    EXPECT_TRUE(batch.Get<float>("input_features").empty());
    ASSERT_EQ(cu_rows.size(), lengths.size() + 1);
    size_t at = 0;
    for (const PackedSample& sample : batch.samples) {
      const Seen& written = Data().samples.at(sample.ordinal);
      EXPECT_EQ(sample.placeholder, written.torn) << sample.name;
      for (const int number : written.maps) {
        SCOPED_TRACE(absl::StrCat(sample.name, " map ", number));
        const std::vector<float> wanted = PatchesOf(Maps()[number]);
        ASSERT_LT(at, lengths.size());
        ASSERT_EQ(lengths[at] * kPatch * kPatch, wanted.size());
        ASSERT_EQ(cu_rows[at + 1] - cu_rows[at], lengths[at]);
        const auto rows =
            depth.subspan(cu_rows[at] * kPatch * kPatch, wanted.size());
        if (written.torn) {
          EXPECT_THAT(rows, Each(0.0f));
        } else {
          EXPECT_TRUE(std::equal(rows.begin(), rows.end(), wanted.begin()));
        }
        ++at;
      }
      seen.insert(sample.ordinal);
    }
    if (batch.dummy_image) {
      EXPECT_THAT(depth.subspan(cu_rows[at] * kPatch * kPatch), Each(0.0f));
      ++at;
      ++dummies;
    }
    EXPECT_EQ(at, lengths.size());
  }
  EXPECT_EQ(seen.size(), Data().samples.size());
  EXPECT_GT(dummies, 0);

  // Other deliveries give the same batches.
  const TestCluster::Batches direct = RunJob(MakeConfig("direct"));
  ASSERT_EQ(direct.size(), batches.size());
  for (const auto& [key, batch] : batches) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(direct.at(key)));
  }
}

TEST(DepthTest, TheTextHasATokenForEachPatch) {
  const LoadedConfig config = MakeConfig("direct");
  const int32_t id = config.config.model().token_ids().audio();
  int checked = 0;
  for (const auto& [key, batch] : RunJob(config)) {
    if (std::get<2>(key) != v1::MODULE_LANGUAGE) continue;
    const auto ids = batch.Get<int64_t>("input_ids");
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      const PackedSample& sample = batch.samples[i];
      const Seen& written = Data().samples.at(sample.ordinal);
      EXPECT_EQ(sample.placeholder, written.torn) << sample.name;
      size_t wanted = 0;
      for (const int number : written.maps) {
        wanted += Maps()[number]["pixels"].size() / (kPatch * kPatch);
      }
      const auto own =
          ids.subspan(batch.text.cu_seqlens_padded[i],
                      batch.text.cu_seqlens[i + 1] - batch.text.cu_seqlens[i]);
      EXPECT_EQ(std::count(own.begin(), own.end(), id), wanted) << sample.name;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 32);
}

TEST(DepthTest, FaultsNameTheKindAndTheKey) {
  const LoadedConfig config = MakeConfig("direct");
  const auto indexed = IndexSources(config, {.rebuild = true});
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  const IndexReport& report = (*indexed)[0].report;
  EXPECT_EQ(report.media[DepthKind()], 6u);
  EXPECT_EQ(report.media[MediumKind::kAudio], 0u);
  std::vector<std::string> reasons;
  for (const BadSample& bad : report.bad) reasons.push_back(bad.reason);
  EXPECT_THAT(
      reasons,
      ElementsAre(HasSubstr("grey.png: no PNG of 16 bits and one channel"),
                  HasSubstr("marks")));

  const std::string file =
      ReadFile(absl::StrCat(kFolder, "depth_maps.textproto"));
  const auto fault = [&](const std::string& from, const std::string& to) {
    return std::string(
        ParseProfile(absl::StrReplaceAll(file, {{from, to}}), "d.textproto")
            .status()
            .message());
  };
  EXPECT_EQ(fault("none", "none"), "");
  EXPECT_THAT(fault("\"depth\"", "\"dept\""), HasSubstr("found \"dept\""));
  EXPECT_THAT(fault("value: 4", "value: 0"), HasSubstr("wanted 1 to 31"));
}

}  // namespace
}  // namespace ballast
