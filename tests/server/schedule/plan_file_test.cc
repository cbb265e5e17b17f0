#include "server/schedule/plan_file.h"

#include <fstream>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_tables.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/read_file.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// step, micro_batch, pack, source, sample
using Row = std::tuple<int64_t, int64_t, int64_t, std::string, int64_t>;

class PlanFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CheckParquetIsBuiltIn().ok()) GTEST_SKIP() << "without Arrow";
  }

  // Writes rows in row groups of `group`.
  static std::string Write(const std::vector<Row>& rows, size_t group = 3,
                           const std::vector<std::string>& keys = {},
                           int64_t repeat_of_last = 0,
                           int64_t epoch_of_last = 0, int64_t check = 0) {
    const std::string path = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(),
        ".parquet");
    auto writer = *PlanTableWriter::Create(path, !keys.empty());
    for (size_t at = 0; at < rows.size(); at += group) {
      PlanColumns columns;
      columns.names = {"chat", "docs", "clips", "none"};
      for (size_t i = at; i < std::min(rows.size(), at + group); ++i) {
        const auto& [step, micro_batch, pack, source, sample] = rows[i];
        columns.step.push_back(step);
        columns.micro_batch.push_back(micro_batch);
        columns.pack.push_back(pack);
        columns.source.push_back(
            std::find(columns.names.begin(), columns.names.end(), source) -
            columns.names.begin());
        columns.sample.push_back(sample);
        if (!keys.empty()) columns.key.push_back(keys[i]);
        const bool is_last = i + 1 == rows.size();
        columns.repeat.push_back(is_last ? repeat_of_last : 0);
        columns.epoch.push_back(is_last ? epoch_of_last : 0);
        columns.check.push_back(is_last ? check : 0);
      }
      // Names that do not occur are left out, as readers find them.
      EXPECT_TRUE(writer->WriteGroup(columns).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return path;
  }

  absl::StatusOr<std::unique_ptr<const PlanRows>> Open(
      const std::string& path) {
    return OpenPlanFile(path, {{"docs", true, &docs_},
                               {"chat", true, &chat_},
                               {"clips", false, &chat_}});
  }

  // The error of opening `rows`.
  std::string Fault(const std::vector<Row>& rows,
                    const std::vector<std::string>& keys = {}) {
    return std::string(Open(Write(rows, 3, keys)).status().message());
  }

  const v1::Config config_ = JobConfig(1, 1, 2, 2);
  FakeSampleSource docs_{config_, 10};
  FakeSampleSource chat_{config_, 4};
};

TEST_F(PlanFileTest, ReadsRowsAcrossRowGroups) {
  const auto plan = Open(Write({{7, 0, -1, "docs", 9},
                                {7, 0, -1, "chat", 3},
                                {7, 1, -1, "docs", 0},
                                {7, 1, -1, "docs", 1},
                                {8, 0, 0, "chat", 0},
                                {8, 0, 1, "docs", 9},
                                {8, 1, 2, "docs", 5}}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*plan)->first_step(), 7u);
  EXPECT_THAT((*plan)->starts(), ElementsAre(0, 4, 7));
  EXPECT_FALSE((*plan)->HasPacks(7));
  EXPECT_TRUE((*plan)->HasPacks(8));
  EXPECT_FALSE((*plan)->HasPacks(9));
  const auto rows = (*plan)->Read(1, 5);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const uint32_t none = PlanRow::kNoPack;
  EXPECT_THAT(*rows, ElementsAre(PlanRow{3, 1, none}, PlanRow{0, 0, none},
                                 PlanRow{1, 0, none}, PlanRow{0, 1, 0},
                                 PlanRow{9, 0, 1}));
  EXPECT_THAT(*(*plan)->CountSources(5), ElementsAre(3, 2, 0));
  EXPECT_THAT(*(*plan)->CountSources(7), ElementsAre(5, 2, 0));
}

// Where another index has numbered the samples since.
TEST_F(PlanFileTest, FindsAnotherSampleUnderItsNumber) {
  docs_.mutable_index()->mutable_sample(3)->text_check = 7;
  const std::vector<Row> rows = {{0, 0, -1, "docs", 2}, {0, 0, -1, "docs", 3}};
  const auto open = [&](int64_t check) {
    return Open(Write(rows, 3, {}, 0, 0, check)).status();
  };
  EXPECT_TRUE(open(0).ok());
  EXPECT_TRUE(open(7).ok());
  EXPECT_THAT(std::string(open(8).message()),
              HasSubstr("row 1: sample 3 of source docs has another text"));
  docs_.mutable_index()->mutable_sample(3)->text_check = 0;
  EXPECT_TRUE(open(8).ok());
}

TEST_F(PlanFileTest, DigestIsOfContentAlone) {
  std::vector<Row> rows = {{0, 0, -1, "docs", 1},
                           {0, 0, -1, "chat", 1},
                           {1, 0, -1, "docs", 2},
                           {1, 0, -1, "docs", 3}};
  const std::string digest = (*Open(Write(rows, 1)))->digest();
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ((*Open(Write(rows, 4)))->digest(), digest);
  rows[3] = {1, 0, -1, "docs", 4};
  EXPECT_NE((*Open(Write(rows, 4)))->digest(), digest);
  rows[3] = {1, 0, -1, "chat", 3};
  EXPECT_NE((*Open(Write(rows, 4)))->digest(), digest);
}

TEST_F(PlanFileTest, FindsSamplesByKeys) {
  docs_.mutable_sample(4)->name = "docs-0.tar: 000123";
  docs_.mutable_sample(5)->name = "docs-1.tar: twice";
  docs_.mutable_sample(6)->name = "docs-2.tar: twice";
  chat_.mutable_sample(2)->name = "chat.jsonl:17";
  const std::vector<Row> rows = {
      {0, 0, -1, "docs", 0}, {0, 0, -1, "docs", 0}, {1, 0, -1, "chat", 0}};
  const auto plan =
      Open(Write(rows, 2, {"000123", "docs-2.tar: twice", "chat.jsonl:17"}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto read = (*plan)->Read(0, 3);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)[0].ordinal, 4u);
  EXPECT_EQ((*read)[1].ordinal, 6u);
  EXPECT_EQ((*read)[2].ordinal, 2u);
  EXPECT_THAT(Fault(rows, {"000123", "twice", "chat.jsonl:17"}),
              HasSubstr("row 1: source docs: several samples have the key "
                        "twice, numbers 5 and 6"));
  EXPECT_THAT(Fault(rows, {"000123", "docs-2.tar: twice", "17"}),
              HasSubstr("row 2: source chat: no sample has the key 17"));
}

TEST_F(PlanFileTest, NamesTheRowOfEachFault) {
  const auto at_end = [](Row row) {
    return std::vector<Row>{{3, 0, -1, "docs", 0},
                            {3, 0, -1, "docs", 1},
                            {4, 0, -1, "docs", 2},
                            {4, 0, -1, "docs", 3},
                            std::move(row)};
  };
  EXPECT_THAT(Fault(at_end({4, 0, -1, "docs", 10})),
              HasSubstr("row 4: sample is 10; wanted 0 to 9"));
  EXPECT_THAT(Fault(at_end({4, 0, -1, "docs", -1})), HasSubstr("row 4: "));
  EXPECT_THAT(Fault(at_end({4, 0, -1, "none", 0})),
              HasSubstr("row 4: source is none, which sources does not have"));
  EXPECT_THAT(Fault(at_end({4, 0, -1, "clips", 0})),
              HasSubstr("row 4: source is clips, which is of another split"));
  EXPECT_THAT(Fault(at_end({4, 0, -1, "docs", 3})),
              HasSubstr("row 4: sample 3 of its source is in step 4 for a "
                        "second time, first in row 3"));
  EXPECT_THAT(Fault(at_end({6, 0, -1, "docs", 4})),
              HasSubstr("row 4: step is 6 after 4; wanted 4 or 5"));
  EXPECT_THAT(Fault(at_end({3, 0, -1, "docs", 4})),
              HasSubstr("row 4: step is 3 after 4"));
  EXPECT_THAT(Fault(at_end({4, 2, -1, "docs", 4})),
              HasSubstr("row 4: micro_batch is 2 in step 4; wanted 0 or 1"));
  EXPECT_THAT(Fault(at_end({4, 1, -1, "docs", 4})),
              HasSubstr("row 4: micro-batch 1 of step 4 has 1 samples, and the "
                        "first 2"));
  EXPECT_THAT(Fault(at_end({4, 0, 0, "docs", 4})),
              HasSubstr("row 4: pack is 0 in step 4, whose first row has "
                        "none"));
  EXPECT_THAT(Fault(at_end({5, 0, 1, "docs", 4})),
              HasSubstr("row 4: step 5 ends without pack 0"));
  EXPECT_THAT(Fault(at_end({4, 0, -2, "docs", 4})),
              HasSubstr("row 4: pack is -2"));
  EXPECT_THAT(Fault({{0, 0, 0, "docs", 0}, {0, 1, 0, "docs", 1}}),
              HasSubstr("row 1: pack 0 of step 0 is in micro-batch 1 and in "
                        "0"));
  EXPECT_THAT(Fault({{0, 1, 0, "docs", 0}, {0, 0, 1, "docs", 1}}),
              HasSubstr("row 1: pack 1 of step 0 is in micro-batch 0, and the "
                        "pack before it in 1"));
  EXPECT_THAT(Fault({{-1, 0, -1, "docs", 0}}), HasSubstr("row 0: step is -1"));
  EXPECT_THAT(Fault({}), HasSubstr("has no rows"));
}

TEST_F(PlanFileTest, ASampleMayComeAgainIfItSaysSo) {
  const std::vector<Row> rows = {{0, 0, -1, "docs", 1}, {0, 0, -1, "docs", 1}};
  EXPECT_FALSE(Open(Write(rows)).ok());
  const auto plan = Open(Write(rows, 3, {}, 1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ((*(*plan)->Read(0, 2))[1].ordinal, 1u);
}

TEST_F(PlanFileTest, EpochsArePartOfTheContent) {
  const std::vector<Row> rows = {{0, 0, -1, "docs", 1}, {0, 0, -1, "docs", 2}};
  const std::string digest = (*Open(Write(rows)))->digest();
  const auto plan = Open(Write(rows, 3, {}, 0, 7));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(*(*plan)->Read(0, 2),
              ElementsAre(PlanRow{1, 0, PlanRow::kNoPack, 0},
                          PlanRow{2, 0, PlanRow::kNoPack, 7}));
  EXPECT_NE((*plan)->digest(), digest);
  EXPECT_NE((*Open(Write(rows, 3, {}, 0, 8)))->digest(), (*plan)->digest());
  EXPECT_THAT(std::string(Open(Write(rows, 3, {}, 0, -1)).status().message()),
              HasSubstr("row 1: epoch is -1; wanted a number from 0"));
}

TEST_F(PlanFileTest, RefusesOtherFiles) {
  const std::string path = ::testing::TempDir() + "/not.parquet";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  std::fputs("step,micro_batch,pack,source,sample\n", file);
  std::fclose(file);
  EXPECT_THAT(Open(path).status().message(), HasSubstr("not Parquet"));
  EXPECT_EQ(Open(path + ".absent").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(StepTableTest, DamageIsNoTable) {
  const std::string path = ::testing::TempDir() + "/steps";
  const std::vector<uint64_t> starts = {0, 8, 12, 40};
  EXPECT_TRUE(LoadStepTable(path + ".absent").empty());
  ASSERT_TRUE(SaveStepTable(path, starts).ok());
  EXPECT_EQ(LoadStepTable(path), starts);
  const std::string bytes = ReadFile(path);
  ASSERT_EQ(bytes.size(), 8u * 7);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 1;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_TRUE(LoadStepTable(path).empty()) << i;
    std::ofstream(path, std::ios::binary) << bytes.substr(0, i);
    EXPECT_TRUE(LoadStepTable(path).empty()) << i;
  }
  EXPECT_EQ(SaveStepTable("/dev/null/steps", starts).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ballast
