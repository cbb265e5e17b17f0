#include "server/command/init/choose_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/data/form/forms.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<RawRecord> Lines(const std::vector<std::string>& lines) {
  std::vector<RawRecord> records;
  for (const std::string& line : lines) {
    RawRecord& record = records.emplace_back();
    record.record.name = "a.jsonl";
    record.given.text = line;
  }
  return records;
}

TEST(ChooseFormTest, TakesTheOneThatExplainsMost) {
  const FormTrial trial =
      ChooseForm(Lines({R"({"image": "a.jpg", "question": "Q", "answer": "A"})",
                        R"({"img": "b.jpg", "question": "Q", "answer": "A"})",
                        R"({"image": "c.jpg", "text": "cap"})"}),
                 {});
  EXPECT_EQ(trial.good, 2);
  EXPECT_EQ(trial.media.with[MediumKind::kImage], 2);
  EXPECT_EQ(FormYaml(trial.form),
            R"({name: "question_answer", images: "image|img", )"
            R"(user: "question", assistant: "answer"})");
  EXPECT_EQ(trial.example, "user: <image>Q | learnt: A");
  EXPECT_THAT(trial.paths, ElementsAre("a.jpg", "b.jpg"));
  EXPECT_THAT(trial.first_fault, HasSubstr("form.user"));
  EXPECT_EQ(trial.also, "");
}

TEST(ChooseFormTest, ShowsTwoThatFitEqually) {
  const FormTrial trial =
      ChooseForm(Lines({R"({"instruction": "Q", "output": "A",
                 "messages": [{"role": "user", "content": "P"},
                              {"role": "assistant", "content": "B"}],
                 "system": "S"})"}),
                 {});
  EXPECT_EQ(trial.good, 1);
  // alpaca reads as many keys, and would leave the turns unread.
  EXPECT_THAT(FormYaml(trial.form), HasSubstr("chat"));
  const FormTrial equal =
      ChooseForm(Lines({R"({"question": "Q", "answer": "A", "instruction": "P",
                 "output": "B"})"}),
                 {});
  EXPECT_EQ(equal.good, 1);
  EXPECT_THAT(equal.also, HasSubstr("question_answer"));
}

TEST(ChooseFormTest, UndesiredAnswersAreNoForm) {
  EXPECT_EQ(ChooseForm(Lines({R"({"messages": [{"role": "user", "content": "Q"},
      {"role": "assistant", "content": "A"}], "label": false})"}),
                       {})
                .good,
            0);
}

// As LLaMA-Factory's data/README.md describes the file.
TEST(ChooseFormTest, ReadsDatasetInfo) {
  const auto forms = ReadDatasetInfo(R"({
    "mine": {"file_name": "mine.json", "formatting": "sharegpt",
             "columns": {"messages": "dialog", "images": "pics"},
             "tags": {"role_tag": "speaker", "content_tag": "utt",
                      "user_tag": "U", "assistant_tag": "A"}},
    "plain": {"file_name": "plain.json"},
    "ranked": {"file_name": "ranked.json", "ranking": true},
    "hub": {"hf_hub_url": "x/y"}})");
  ASSERT_EQ(forms.size(), 2);
  EXPECT_EQ(forms[0].file_name, "mine.json");
  const FormTrial trial =
      ChooseForm(Lines({R"({"dialog": [{"speaker": "U", "utt": "<image>Q"},
                            {"speaker": "A", "utt": "R"}], "pics": ["0.jpg"]})"}),
                 {forms[0].form});
  EXPECT_EQ(trial.good, 1) << trial.first_fault;
  EXPECT_EQ(trial.example, "user: <image>Q | learnt: R");
  EXPECT_EQ(ChooseForm(Lines({R"({"instruction": "I", "input": "i",
      "output": "O"})"}),
                       {forms[1].form})
                .example,
            "user: I\\ni | learnt: O");
  EXPECT_TRUE(ReadDatasetInfo(R"({"features": {}, "splits": {}})").empty());
  EXPECT_TRUE(ReadDatasetInfo("no JSON").empty());
}

}  // namespace
}  // namespace ballast
