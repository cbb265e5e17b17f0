// Jobs over records through a recipe, against jobs over the same samples in the
// forms that need none: the same plan, the same batches.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/python_helper.h"
#include "server/config/config_loader.h"
#include "server/data/parquet/parquet_tables.h"
#include "server/job/index_sources.h"
#include "server/job/job_setup.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"
#include "tests/server/data/corpus_testing.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRawRecords = 24;
constexpr uint64_t kRecipeSteps = 3;

struct MadeByRecipe {
  std::string question;
  std::string answer;
  std::vector<std::string> images;
};

MadeByRecipe MakeRawRecord(int i) {
  MadeByRecipe made;
  for (int k = 0; k < i % 3; ++k) {
    absl::StrAppend(&made.question, "<image>");
    made.images.push_back(MakeJpeg({.width = 56u + 28u * (i % 4),
                                    .height = 56u + 28u * k,
                                    .seed = static_cast<uint32_t>(i + k)}));
  }
  absl::StrAppend(&made.question, "What is ", i, "?");
  made.answer = absl::StrCat("It is ", std::string(i % 7, 'x'), i);
  return made;
}

constexpr char kHead[] =
    "import ballast.recipe as recipe\n"
    "@recipe.cook\n"
    "def cook(record):\n";
constexpr char kSample[] =
    "    return recipe.Sample([{'role': 'user', 'content': q}, {'role': "
    "'assistant', 'content': a}], images=images)\n";

std::string Turns(const MadeByRecipe& made) {
  return absl::StrCat(
      R"("messages": [{"role": "user", "content": ")", made.question,
      R"("}, {"role": "assistant", "content": ")", made.answer, R"("}])");
}

class RecipeJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  }

  LoadedConfig MakeConfig(absl::string_view source, absl::string_view more) {
    TestJob job;
    job.sources = absl::StrCat("{name: docs, ", source, more, "}");
    job.model = "profile: qwen2_5_vl";
    job.batch = "global: 8, micro: 4";
    return ParseJob(job, folder_);
  }

  // The micro-batches of the first steps, as the schedule has them.
  static std::vector<std::string> Plan(const LoadedConfig& config) {
    const auto job = OpenJob(config);
    EXPECT_TRUE(job.ok()) << job.status();
    std::vector<std::string> plan;
    if (!job.ok()) return plan;
    for (uint64_t step = 0; step < kRecipeSteps; ++step) {
      const auto schedule = job->scheduler->Schedule(step);
      EXPECT_TRUE(schedule.ok()) << schedule.status();
      for (const auto& micro_batch : schedule->micro_batches()) {
        plan.push_back(micro_batch.SerializeAsString());
      }
    }
    return plan;
  }

  static TestCluster::Batches Run(const LoadedConfig& config) {
    return RunJob(config, kRecipeSteps);
  }

  void ExpectSameJob(const LoadedConfig& cooked, const LoadedConfig& plain) {
    const TestCluster::Batches one = Run(cooked);
    const TestCluster::Batches other = Run(plain);
    ASSERT_FALSE(one.empty());
    ASSERT_EQ(one.size(), other.size());
    for (const auto& [key, batch] : one) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(other.at(key)));
    }
    EXPECT_EQ(Plan(cooked), Plan(plain));
  }

  void WriteRecipe(absl::string_view body) {
    WriteFile(folder_ + "/my_recipe.py", absl::StrCat(kHead, body, kSample));
  }

  const std::string folder_ = TestFolder();
};

constexpr char kRecipe[] = ", recipe: my_recipe.py, index: cooked.index";

TEST_F(RecipeJobTest, LinesGiveTheSameBatches) {
  std::string raw, plain;
  for (int i = 0; i < kRawRecords; ++i) {
    const MadeByRecipe made = MakeRawRecord(i);
    std::string paths;
    for (size_t k = 0; k < made.images.size(); ++k) {
      const std::string path = absl::StrCat("m/", i, "-", k, ".jpg");
      WriteFile(absl::StrCat(folder_, "/", path), made.images[k]);
      absl::StrAppend(&paths, k > 0 ? ", \"" : "\"", path, "\"");
    }
    absl::StrAppend(&raw, R"({"q": ")", made.question, R"(", "a": ")",
                    made.answer, R"(", "pics": [)", paths, "]}\n");
    absl::StrAppend(&plain, "{", Turns(made), R"(, "images": [)", paths,
                    "]}\n");
  }
  WriteFile(folder_ + "/raw.jsonl", raw);
  WriteFile(folder_ + "/plain.jsonl", plain);
  WriteRecipe(
      "    row = record.json(); q, a = row['q'], row['a']\n"
      "    images = record.media('pics')\n");
  ExpectSameJob(MakeConfig("format: jsonl, path: raw.jsonl", kRecipe),
                MakeConfig("format: jsonl, path: plain.jsonl", ""));
}

TEST_F(RecipeJobTest, MembersGiveTheSameBatches) {
  std::vector<std::pair<std::string, std::string>> raw, plain;
  for (int i = 0; i < kRawRecords; ++i) {
    const MadeByRecipe made = MakeRawRecord(i);
    const std::string key = absl::StrCat("k", i);
    raw.push_back({key + ".question", made.question});
    raw.push_back({key + ".answer.txt", made.answer});
    plain.push_back({key + ".json", absl::StrCat("{", Turns(made), "}")});
    for (size_t k = 0; k < made.images.size(); ++k) {
      raw.push_back({absl::StrCat(key, ".page", k, ".jpg"), made.images[k]});
      plain.push_back({absl::StrCat(key, ".", k, ".jpg"), made.images[k]});
    }
  }
  WriteTar(folder_ + "/raw.tar", raw);
  WriteTar(folder_ + "/plain.tar", plain);
  WriteRecipe(
      "    m = record.members\n"
      "    q, a = m['question'].text(), m['answer.txt'].text()\n"
      "    images = [m[n] for n in sorted(m) if n.startswith('page')]\n");
  ExpectSameJob(MakeConfig("format: webdataset, path: raw.tar", kRecipe),
                MakeConfig("format: webdataset, path: plain.tar", ""));
}

TEST_F(RecipeJobTest, RowsGiveTheSameBatches) {
  auto writer = ParquetWriter::Create(folder_ + "/docs.parquet");
  if (absl::IsUnimplemented(writer.status())) {
    GTEST_SKIP() << writer.status().message();
  }
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::vector<MadeByRecipe> all;
  for (int i = 0; i < kRawRecords; ++i) all.push_back(MakeRawRecord(i));
  for (int begin = 0; begin < kRawRecords; begin += 8) {
    std::vector<ParquetWriter::Row> rows;
    for (int i = begin; i < begin + 8; ++i) {
      ParquetWriter::Row& row = rows.emplace_back();
      for (const std::string& image : all[i].images) {
        row.images.push_back({"x.jpg", image});
      }
      row.turns = {{"human", all[i].question}, {"gpt", all[i].answer}};
    }
    ASSERT_TRUE((*writer)->WriteGroup(rows).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  WriteRecipe(
      "    c = record.columns; q, a = (t['value'] for t in "
      "c['conversations'])\n"
      "    images = record.media('images')\n");
  ExpectSameJob(MakeConfig("format: parquet, path: docs.parquet", kRecipe),
                MakeConfig("format: parquet, path: docs.parquet", ""));
}

TEST_F(RecipeJobTest, TheRecipeIsInTheFingerprintAndIsVerified) {
  WriteFile(folder_ + "/raw.jsonl", "1\n2\n3\n4\n5\n6\n7\n8\n");
  const auto write = [this](absl::string_view text) {
    WriteFile(folder_ + "/my_recipe.py",
              absl::StrCat("import ballast.recipe as recipe\nseen = []\n"
                           "@recipe.cook\ndef cook(record):\n",
                           "    seen.append(1)\n    return recipe.Sample(text=",
                           text, ")\n"));
  };
  const LoadedConfig config =
      MakeConfig("format: jsonl, path: raw.jsonl", kRecipe);
  write("'record ' + record.text()");
  ASSERT_TRUE(IndexSources(config, {}).ok());
  const auto entry = [](const LoadedConfig& from) {
    const auto job = OpenJob(from);
    EXPECT_TRUE(job.ok()) << job.status();
    std::string value;
    for (const auto& each : job->scheduler->fingerprint().entries()) {
      if (each.key() == "delivery.recipe.docs") value = each.value();
    }
    return value;
  };
  const std::string first = entry(config);
  EXPECT_THAT(first, HasSubstr("+python-3."));
  const auto verified = VerifyRecipes(config, 5);
  ASSERT_TRUE(verified.ok()) << verified.status();
  ASSERT_EQ(verified->size(), 1u);
  EXPECT_EQ((*verified)[0].samples, 5u);

  write("'number ' + str(len(seen))");
  EXPECT_FALSE(OpenJob(config).ok());
  ASSERT_TRUE(IndexSources(config, {}).ok());
  EXPECT_NE(entry(config), first);
  EXPECT_THAT(std::string(VerifyRecipes(config, 8).status().message()),
              AllOf(HasSubstr("source docs"), HasSubstr("must be pure")));
}

}  // namespace
}  // namespace ballast
