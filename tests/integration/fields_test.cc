// Numbers of records in the batches of every rank, against a formula: in all
// delivery modes, packed and padded, cut and whole.

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {
namespace {

constexpr int kRecords = 40;
constexpr uint64_t kTestedSteps = 3;
constexpr uint32_t kMaxTokens = 60;

// What a record is, and what its tokens must have.
struct Made {
  std::string json;
  std::vector<float> logprob;   // one a token
  std::vector<int32_t> part;    // of the token's turn
  std::vector<float> weight;    // likewise
  std::vector<bool> is_answer;  // of the assistant, without its header
  float advantage = 0;
};

// With the tokenizer `bytes` and `chatml` a turn is <|im_start|>, its role and
// a line break, its text, <|im_end|> and a line break.
Made MakeRecord(int i) {
  Made made;
  std::string turns;
  for (int t = 0; t < 2 + i % 3; ++t) {
    const bool is_answer = t % 2 == 1;
    const std::string role = is_answer ? "assistant" : "user";
    const std::string text((7 * i + 5 * t) % 23 + 1, 'a' + t);
    const float weight = is_answer ? static_cast<float>((i + t) % 5) / 4 : 1;
    // Turns of weight 1 may leave it out.
    absl::StrAppend(&turns, t == 0 ? "" : ", ", R"({"role": ")", role,
                    R"(", "content": ")", text, "\"",
                    weight == 1 ? "" : absl::StrCat(", \"weight\": ", weight),
                    "}");
    const size_t header = 1 + role.size() + 1;
    const size_t tokens = header + text.size() + 2;
    for (size_t k = 0; k < tokens; ++k) {
      made.part.push_back(100 * i + t);
      made.weight.push_back(weight);
      made.is_answer.push_back(is_answer && weight > 0 && k >= header &&
                               k + 1 < tokens);
      made.logprob.push_back(0.25f * static_cast<float>(made.logprob.size()) -
                             static_cast<float>(i));
    }
  }
  made.advantage = i % 4 == 0 ? -1.5f : static_cast<float>(i) / 8;
  std::string parts, logprobs;
  for (int t = 0; t < 2 + i % 3; ++t) {
    absl::StrAppend(&parts, t == 0 ? "" : ", ", 100 * i + t);
  }
  for (const float value : made.logprob) {
    absl::StrAppend(&logprobs, logprobs.empty() ? "" : ", ", value);
  }
  made.json = absl::StrCat(
      R"({"messages": [)", turns, R"(], "part": [)", parts,
      R"(], "logprob": [)", logprobs, "]",
      i % 4 == 0 ? "" : absl::StrCat(R"(, "advantage": )", made.advantage),
      "}\n");
  return made;
}

class FieldsTest : public ::testing::Test {
 protected:
  FieldsTest() {
    std::ofstream file(folder_ + "/chat.jsonl");
    for (int i = 0; i < kRecords; ++i) {
      records_.push_back(MakeRecord(i));
      file << records_.back().json;
    }
  }

  LoadedConfig MakeConfig(absl::string_view delivery, absl::string_view mode,
                          absl::string_view fields = kFields) {
    TestJob job;
    job.sources = absl::StrCat("{name: chat, format: jsonl, path: chat.jsonl",
                               fields, "}");
    job.model = "profile: qwen2_5_vl, chat_template: chatml";
    absl::StrAppend(&job.batch, ", max_tokens: ", kMaxTokens,
                    ", on_too_long: truncate_text");
    job.modules = "language: {dp: 2}";
    job.balance =
        absl::StrCat("delivery: ", delivery,
                     ", cost: {language: {linear: 1}}, equal_count: true");
    job.more = absl::StrCat("packing: {mode: ", mode, ", align: 4}\n");
    return ParseJob(job, folder_);
  }

  static TestCluster::Batches Run(const LoadedConfig& config) {
    return RunJob(config, kTestedSteps);
  }

  // Compares the batch with the records of its samples.
  void ExpectFormula(const PackedBatch& batch) {
    const auto advantage = batch.Get<float>("fields.advantage");
    const auto logprob = batch.Get<float>("fields.logprob");
    const auto part = batch.Get<int32_t>("fields.part");
    const auto weight = batch.Get<float>("fields.weight");
    const auto labels = batch.Get<int64_t>("labels");
    const auto mask = batch.Get<float>("loss_mask");
    ASSERT_EQ(advantage.size(), batch.samples.size());
    ASSERT_EQ(logprob.size(), labels.size());
    ASSERT_EQ(part.size(), labels.size());
    const auto& places = batch.text.cu_seqlens_padded;
    const auto& ends = batch.text.cu_seqlens;
    for (size_t s = 0; s < batch.samples.size(); ++s) {
      const Made& made = records_[batch.samples[s].ordinal];
      EXPECT_EQ(advantage[s], made.advantage);
      const size_t real = ends[s + 1] - ends[s];
      ASSERT_EQ(real, std::min<size_t>(made.part.size(), kMaxTokens));
      for (size_t k = 0; k < size_t(places[s + 1] - places[s]); ++k) {
        SCOPED_TRACE(absl::StrCat(batch.samples[s].name, " token ", k));
        const size_t at = places[s] + k;
        EXPECT_EQ(logprob[at], k < real ? made.logprob[k] : 0);
        EXPECT_EQ(part[at], k < real ? made.part[k] : 0);
        EXPECT_EQ(weight[at], k < real ? made.weight[k] : 0);
        const bool is_learnt = k + 1 < real && made.is_answer[k + 1];
        EXPECT_EQ(labels[at] != -100, is_learnt);
        EXPECT_EQ(mask[at], is_learnt ? made.weight[k + 1] : 0);
      }
    }
  }

  static constexpr char kFields[] =
      ", fields: {advantage: {type: float32, default: -1.5}, "
      "logprob: {type: float32, per: token}, part: {type: int32, per: turn}, "
      "weight: {type: float32, per: turn, default: 1}}";

  const std::string folder_ = ::testing::TempDir();
  std::vector<Made> records_;
};

TEST_F(FieldsTest, ArriveInEveryMode) {
  for (const char* packing : {"shard", "padded"}) {
    std::vector<TestCluster::Batches> all;
    for (const char* delivery : {"exchange", "direct", "hybrid", "off"}) {
      SCOPED_TRACE(absl::StrCat(packing, " ", delivery));
      all.push_back(Run(MakeConfig(delivery, packing)));
      ASSERT_FALSE(all.back().empty());
      uint64_t labels = 0;
      for (const auto& [key, batch] : all.back()) {
        ExpectFormula(batch);
        for (const int64_t label : batch.Get<int64_t>("labels")) {
          labels += label != -100;
        }
      }
      uint64_t counted = 0;
      for (const auto& [key, batch] : all.back()) {
        counted += batch.totals.label_tokens;
      }
      EXPECT_EQ(counted, labels);
    }
    uint64_t moved = 0;
    for (const auto& [key, batch] : all[0]) {
      moved += batch.bytes_moved;
      for (const int other : {1, 2}) {
        EXPECT_EQ(ComputeDigest(batch), ComputeDigest(all[other].at(key)));
      }
    }
    EXPECT_GT(moved, 0u);
  }
}

// The samples are the same, so a batch without fields is the other one's part.
TEST_F(FieldsTest, LeaveTheOtherTensorsAsTheyAre) {
  for (int i = 0; i < kRecords; ++i) {
    // Without weights, which change labels.
    std::string& json = records_[i].json;
    for (size_t at; (at = json.find(", \"weight\"")) != json.npos;) {
      json.erase(at, json.find('}', at) - at);
    }
  }
  std::ofstream file(folder_ + "/chat.jsonl");
  for (const Made& made : records_) file << made.json;
  file.close();
  const auto with = Run(MakeConfig(
      "exchange", "shard", ", fields: {part: {type: int32, per: turn}}"));
  const auto without = Run(MakeConfig("exchange", "shard", ""));
  ASSERT_EQ(with.size(), without.size());
  for (const auto& [key, batch] : with) {
    const PackedBatch& other = without.at(key);
    EXPECT_EQ(other.Get<int32_t>("fields.part").size(), 0u);
    EXPECT_GT(batch.Get<int32_t>("fields.part").size(), 0u);
    for (const char* name : {"input_ids", "labels", "position_ids"}) {
      EXPECT_EQ(batch.Get<int64_t>(name), other.Get<int64_t>(name)) << name;
    }
  }
}

}  // namespace
}  // namespace ballast
