// Preference pairs from files to the batches of every rank. The oracle are
// ordinary samples: each of a pair's two sequences is the sample of the same
// conversation, to the number, in all delivery modes, packed and padded.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/python_helper.h"
#include "server/config/config_loader.h"
#include "server/data/energon/energon_tar.h"
#include "server/job/job_setup.h"
#include "server/schedule/plan_export.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/test_cluster.h"
#include "tests/server/data/corpus_testing.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {
namespace {

constexpr int kPairs = 24;
constexpr uint64_t kPairSteps = 3;

// A sequence's numbers, in one list.
using Numbers = std::vector<int64_t>;

class PairsTest : public ::testing::Test {
 protected:
  PairsTest() {
    std::ofstream pairs(folder_ + "/pairs.jsonl");
    std::ofstream chats(folder_ + "/chats.jsonl");
    std::ofstream others(folder_ + "/others.jsonl");
    std::ofstream own(folder_ + "/own.jsonl");
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < kPairs; ++i) {
      const std::string image = absl::StrCat(i, ".png");
      const std::string png =
          PlainPicture::Grained(60 + 28 * (i % 5), 60 + 28 * (i % 3),
                                {90, 90, 200}, {9, 80, 120}, 7, i)
              .Encode(FileFormat::kPng, 0);
      WriteFile(folder_ + "/" + image, png);
      const bool has_image = i % 3 != 0;
      const std::string images =
          has_image ? absl::StrCat(R"(, "images": [")", image, R"("])") : "";
      const std::string mark = has_image ? "<image>" : "";
      const std::string ask = absl::StrCat(
          R"({"role": "user", "content": ")", mark, std::string(1 + i % 7, 'q'),
          R"("}, {"role": "assistant", "content": "earlier")");
      const std::string then =
          absl::StrCat(R"({"role": "user", "content": "then?"})");
      const auto answer = [](const std::string& text) {
        return absl::StrCat(R"({"role": "assistant", "content": ")", text,
                            R"("})");
      };
      const std::string chosen = answer(std::string(1 + 5 * i % 31, 'y'));
      const std::string rejected = answer(std::string(1 + 11 * i % 29, 'n'));
      const std::string pair =
          absl::StrCat(R"({"prompt": [)", ask, "}, ", then, R"(], "chosen": [)",
                       chosen, R"(], "rejected": [)", rejected, "]");
      pairs << pair << images << "}\n";
      members.push_back({absl::StrCat(i, ".json"), pair + "}"});
      if (has_image) members.push_back({image, png});
      own << R"({"ask": [)" << ask << "}, " << then << R"(], "good": )"
          << chosen << R"(, "bad": )" << rejected << images << "}\n";
      // Answers of the prompt are not learnt.
      for (const std::string& last : {chosen, rejected}) {
        chats << R"({"messages": [)" << ask << R"(, "weight": 0}, )" << then
              << ", " << last << "]" << images << "}\n";
      }
      others << R"({"messages": [)" << then << ", " << chosen << "]}\n";
    }
    WriteTar(folder_ + "/pairs.tar", members);
    std::filesystem::create_directories(folder_ + "/nv");
    WriteTar(folder_ + "/nv/a.tar", members);
    EXPECT_TRUE(
        WriteEnergonMeta({folder_ + "/nv",
                          {"a.tar"},
                          {{"train", {"a.tar"}}},
                          "__module__: megatron.bridge.data.energon\n"
                          "__class__: ChatMLWebdataset\n"
                          "field_map: {imgs: png, conversation: json}\n"})
            .ok());
    WriteFile(folder_ + "/own.py",
              "import ballast.recipe as recipe\n"
              "@recipe.cook\n"
              "def cook(record):\n"
              "    row = record.json()\n"
              "    return recipe.Sample(row['ask'] + [row['good']],\n"
              "        rejected_messages=row['ask'] + [row['bad']],\n"
              "        images=record.media('images') if 'images' in row else "
              "[])\n");
  }

  LoadedConfig MakeConfig(const std::string& sources,
                          const std::string& delivery,
                          const std::string& packing) {
    const auto config = ParseConfig(
        absl::StrCat("sources: [", sources,
                     "]\n"
                     "model: {profile: qwen2_5_vl, chat_template: chatml, "
                     "max_pixels: 12544}\n"
                     "batch: {global: 8, micro: 8, max_tokens: 512}\n"
                     "topology: {modules: {vision: {dp: 2}, "
                     "language: {dp: 2}}}\n"
                     "balance: {delivery: ",
                     delivery, packing == "padded" ? ", equal_count: true" : "",
                     "}\npacking: {mode: ", packing,
                     ", align: 4}\n"
                     "serve: {threads: 2, memory: 64MiB, listen: "
                     "['unix:/replaced']}\n"),
        "test.yaml", folder_);
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  }

  static std::string Source(const char* name, const char* more = "") {
    return absl::StrCat("{name: ", name, ", format: jsonl, path: ", name,
                        ".jsonl, media_root: .", more, "}");
  }

  static TestCluster::Batches Run(const LoadedConfig& config, uint64_t step = 0,
                                  uint64_t steps = kPairSteps) {
    auto cluster = TestCluster::Start(config, 2);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    if (!cluster.ok()) return {};
    auto batches = (*cluster)->RunRanks(step, steps);
    EXPECT_TRUE(batches.ok()) << batches.status();
    return batches.ok() ? *std::move(batches) : TestCluster::Batches();
  }

  // Sequence `s` of a language batch without its padding.
  static Numbers SequenceOf(const PackedBatch& batch, size_t s) {
    Numbers numbers;
    const size_t begin = batch.text.cu_seqlens_padded[s];
    const size_t count =
        batch.text.cu_seqlens[s + 1] - batch.text.cu_seqlens[s];
    const auto positions = batch.Get<int64_t>("position_ids");
    const size_t tokens = positions.size() / 3;
    for (const auto values :
         {batch.Get<int64_t>("input_ids"), batch.Get<int64_t>("labels"),
          positions.subspan(0, tokens), positions.subspan(tokens, tokens),
          positions.subspan(2 * tokens, tokens)}) {
      const auto part = values.subspan(begin, count);
      numbers.insert(numbers.end(), part.begin(), part.end());
    }
    for (const float value :
         batch.Get<float>("loss_mask").subspan(begin, count)) {
      numbers.push_back(static_cast<int64_t>(value));
    }
    return numbers;
  }

  static bool IsLanguage(const PackedBatch& batch) {
    return !batch.text.cu_seqlens.empty();
  }

  // The ordinary samples of the conversations: chosen and rejected in turn.
  std::vector<Numbers> Oracle() {
    std::vector<Numbers> wanted(2 * kPairs);
    const auto batches =
        Run(MakeConfig(Source("chats"), "off", "shard"), 0, 2 * kPairs / 8);
    for (const auto& [key, batch] : batches) {
      if (!IsLanguage(batch)) continue;
      EXPECT_TRUE(batch.Get<int32_t>("pair").empty());
      for (size_t s = 0; s < batch.samples.size(); ++s) {
        wanted[batch.samples[s].ordinal] = SequenceOf(batch, s);
      }
    }
    return wanted;
  }

  const std::string folder_ = [] {
    const std::string folder = ::testing::TempDir() + "/pairs";
    std::filesystem::create_directories(folder);
    return folder;
  }();
};

TEST_F(PairsTest, AreTheTwoOrdinarySamplesInEveryMode) {
  const std::vector<Numbers> wanted = Oracle();
  for (const std::string packing :
       {"shard", "padded", "scheduled, max_tokens_per_rank: 1024"}) {
    std::vector<TestCluster::Batches> all;
    for (const char* delivery : {"exchange", "direct", "hybrid", "off"}) {
      if (packing != "shard" && packing != "padded" &&
          absl::string_view(delivery) == "off") {
        continue;
      }
      SCOPED_TRACE(absl::StrCat(packing, " ", delivery));
      all.push_back(
          Run(MakeConfig(Source("pairs", ", pairs: true"), delivery, packing)));
      ASSERT_FALSE(all.back().empty());
      size_t seen = 0;
      size_t images = 0;
      size_t of_samples = 0;
      for (const auto& [key, batch] : all.back()) {
        if (!IsLanguage(batch)) {
          images += batch.vision.num_images() - (batch.dummy_image ? 1 : 0);
          continue;
        }
        const auto pair = batch.Get<int32_t>("pair");
        ASSERT_EQ(pair.size(), 2 * batch.samples.size());
        uint64_t squares = 0;
        uint64_t labels = 0;
        for (size_t s = 0; s < pair.size(); ++s) {
          EXPECT_EQ(pair[s], static_cast<int32_t>(s % 2));
          const uint64_t ordinal = batch.samples[s / 2].ordinal;
          EXPECT_EQ(SequenceOf(batch, s), wanted[2 * ordinal + s % 2])
              << batch.samples[s / 2].name << " " << s % 2;
          of_samples += s % 2 == 0 && ordinal % 3 != 0;
          const uint64_t n =
              batch.text.cu_seqlens[s + 1] - batch.text.cu_seqlens[s];
          squares += n * n;
        }
        for (const int64_t label : batch.Get<int64_t>("labels")) {
          labels += label != -100;
        }
        EXPECT_EQ(batch.totals.samples, batch.samples.size());
        EXPECT_EQ(batch.totals.tokens, uint64_t(batch.text.tokens()));
        EXPECT_EQ(batch.totals.tokens_squared, squares);
        EXPECT_EQ(batch.totals.padded_tokens,
                  uint64_t(batch.text.padded_tokens()));
        EXPECT_EQ(batch.totals.label_tokens, labels);
        seen += batch.samples.size();
      }
      EXPECT_EQ(seen, 8 * kPairSteps);
      // Both sequences see an image that was made once.
      EXPECT_EQ(images, of_samples);
      EXPECT_GT(images, 0u);
    }
    uint64_t moved = 0;
    for (const auto& [key, batch] : all[0]) {
      moved += batch.bytes_moved;
      for (const int other : {1, 2}) {
        EXPECT_EQ(ComputeDigest(batch), ComputeDigest(all[other].at(key)));
        EXPECT_EQ(SampleDigests(batch), SampleDigests(all[other].at(key)));
      }
    }
    EXPECT_GT(moved, 0u);
  }
}

TEST_F(PairsTest, ComeInTarsInFoldersOfEnergonAndFromARecipe) {
  const std::vector<Numbers> wanted = Oracle();
  for (const char* source :
       {"format: webdataset, path: pairs.tar", "format: energon, path: nv",
        "format: jsonl, path: own.jsonl, media_root: ., recipe: own.py"}) {
    if (absl::StrContains(source, "recipe") && FindPythons().empty()) continue;
    SCOPED_TRACE(source);
    std::filesystem::remove_all(folder_ + "/.ballast");
    const auto batches =
        Run(MakeConfig(absl::StrCat("{name: pairs, ", source, ", pairs: true}"),
                       "exchange", "shard"));
    size_t seen = 0;
    size_t images = 0;
    for (const auto& [key, batch] : batches) {
      if (!IsLanguage(batch)) {
        images += batch.vision.num_images() - (batch.dummy_image ? 1 : 0);
        continue;
      }
      ASSERT_EQ(batch.Get<int32_t>("pair").size(), 2 * batch.samples.size());
      for (size_t s = 0; s < 2 * batch.samples.size(); ++s) {
        EXPECT_EQ(SequenceOf(batch, s),
                  wanted[2 * batch.samples[s / 2].ordinal + s % 2]);
      }
      seen += batch.samples.size();
    }
    EXPECT_EQ(seen, 8 * kPairSteps);
    EXPECT_EQ(images, seen * 2 / 3);
  }
}

// Packs hold each sequence with its own padding, also those made offline.
TEST_F(PairsTest, FillPacksThatAreMadeOffline) {
  LoadedConfig config = MakeConfig(Source("pairs", ", pairs: true"), "exchange",
                                   "scheduled, max_tokens_per_rank: 1024");
  config.config.mutable_packing()->set_align(64);
  ASSERT_FALSE(Run(config, 0, 1).empty());  // indexes the source
  const auto job = OpenJob(config);
  ASSERT_TRUE(job.ok()) << job.status();
  const std::string path = folder_ + "/packs.parquet";
  PackOptions options;
  options.tokens = 1024;
  options.packs = 4;
  options.last_step = kPairSteps - 1;
  const auto figures = WritePacks(job->config, *job->scheduler,
                                  job->source_pointers(), options, path);
  if (absl::IsUnimplemented(figures.status())) GTEST_SKIP();
  ASSERT_TRUE(figures.ok()) << figures.status();
  config.config.mutable_order()->set_plan(path);
  const std::vector<Numbers> wanted = Oracle();
  size_t seen = 0;
  for (const auto& [key, batch] : Run(config, 0, figures->steps)) {
    if (!IsLanguage(batch)) continue;
    EXPECT_LE(batch.text.padded_tokens(), 1024);
    for (size_t s = 0; s < 2 * batch.samples.size(); ++s) {
      EXPECT_EQ(SequenceOf(batch, s),
                wanted[2 * batch.samples[s / 2].ordinal + s % 2]);
    }
    seen += batch.samples.size();
  }
  EXPECT_EQ(seen, figures->samples);
  EXPECT_GT(seen, 0u);
}

TEST_F(PairsTest, ResumeWhereTheyWere) {
  const LoadedConfig config =
      MakeConfig(Source("pairs", ", pairs: true"), "exchange", "shard");
  const auto all = Run(config);
  const auto later = Run(config, 2, 1);
  ASSERT_FALSE(later.empty());
  for (const auto& [key, batch] : later) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(all.at(key)));
  }
}

TEST_F(PairsTest, StandBesideSamplesOfOneSequence) {
  const auto batches = Run(MakeConfig(
      absl::StrCat(Source("pairs", ", pairs: true"), ", ", Source("others")),
      "exchange", "shard"));
  size_t of[3] = {0, 0, 0};
  for (const auto& [key, batch] : batches) {
    if (!IsLanguage(batch)) continue;
    const auto pair = batch.Get<int32_t>("pair");
    size_t sequence = 0;
    for (const PackedSample& sample : batch.samples) {
      const bool is_pair = sample.source == 0;
      ASSERT_LT(sequence, pair.size());
      EXPECT_EQ(pair[sequence], is_pair ? 0 : -1);
      sequence += is_pair ? 2 : 1;
    }
    EXPECT_EQ(sequence, pair.size());
    for (const int32_t each : pair) ++of[each + 1];
  }
  EXPECT_GT(of[0], 0u);
  EXPECT_GT(of[1], 0u);
  EXPECT_EQ(of[1], of[2]);
}

// A bad sample is replaced by two sequences of its lengths.
TEST_F(PairsTest, OfABadImageArePlaceholders) {
  const LoadedConfig config =
      MakeConfig(Source("pairs", ", pairs: true"), "exchange", "shard");
  auto cluster = TestCluster::Start(config, 2);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<Numbers> wanted = Oracle();
  // The same length, time and head.
  const std::string path = folder_ + "/1.png";
  const auto time = std::filesystem::last_write_time(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file << "damaged, and not by a little";
  }
  std::filesystem::last_write_time(path, time);
  const auto batches = (*cluster)->RunRanks(0, kPairSteps);
  ASSERT_TRUE(batches.ok()) << batches.status();
  size_t placeholders = 0;
  for (const auto& [key, batch] : *batches) {
    if (!IsLanguage(batch)) continue;
    const auto labels = batch.Get<int64_t>("labels");
    for (size_t i = 0; i < batch.samples.size(); ++i) {
      if (!batch.samples[i].placeholder) continue;
      ++placeholders;
      EXPECT_EQ(batch.samples[i].ordinal, 1u);
      for (size_t s = 2 * i; s < 2 * i + 2; ++s) {
        EXPECT_EQ(SequenceOf(batch, s).size(), wanted[2 + s - 2 * i].size());
      }
      for (int32_t t = batch.text.cu_seqlens_padded[2 * i];
           t < batch.text.cu_seqlens_padded[2 * i + 2]; ++t) {
        EXPECT_EQ(labels[t], -100);
      }
    }
  }
  EXPECT_EQ(placeholders, 1u);
}

}  // namespace
}  // namespace ballast
