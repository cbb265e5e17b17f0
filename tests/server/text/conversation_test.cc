#include "server/text/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseConversationTest, MapsEveryNameOfARole) {
  const auto turns = ParseConversation(R"({"id": 7, "conversations": [
      {"from": "system", "value": "s"}, {"from": "human", "value": "h"},
      {"from": "gpt", "value": "g"}, {"from": "user", "value": "u"},
      {"value": "a", "from": "assistant", "weight": 1}], "image": "x.jpg"})");
  ASSERT_TRUE(turns.ok()) << turns.status();
  ASSERT_EQ(turns->size(), 5u);
  const Role roles[] = {Role::kSystem, Role::kUser, Role::kAssistant,
                        Role::kUser, Role::kAssistant};
  const char* texts[] = {"s", "h", "g", "u", "a"};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ((*turns)[i].role, roles[i]) << i;
    EXPECT_EQ((*turns)[i].text, texts[i]) << i;
  }
}

TEST(ParseConversationTest, UnescapesAndKeepsTheTextAsItIs) {
  const auto turns = ParseConversation(
      R"({"conversations": [{"from": "human", "value": " \u00e4\n\"<image>\" "}]})");
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ((*turns)[0].text, " \xc3\xa4\n\"<image>\" ");
}

TEST(ParseConversationTest, ReadsOpenAisForm) {
  const auto turns = ParseConversation(R"({"messages": [
      {"role": "developer", "content": "d"},
      {"role": "user", "content": [
          {"type": "image_url", "image_url": {"url": "a.jpg"}},
          {"type": "text", "text": "What"}, {"type": "text", "text": " is "},
          {"type": "image"}, {"type": "text", "text": "?"}]},
      {"role": "assistant", "content": "a"},
      {"role": "user", "content": []}]})");
  ASSERT_TRUE(turns.ok()) << turns.status();
  ASSERT_EQ(turns->size(), 4u);
  EXPECT_EQ((*turns)[0].role, Role::kSystem);
  EXPECT_EQ((*turns)[1].text, "<image>What is <image>?");
  EXPECT_EQ((*turns)[2].role, Role::kAssistant);
  EXPECT_EQ((*turns)[3].text, "");
}

// Mixed forms that other tools write.
TEST(ParseConversationTest, AcceptsMixedForms) {
  const auto turns = ParseConversation(R"({"messages": [
      {"from": "human", "value": "h"}, {"role": "assistant", "content": "a"}]})");
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ((*turns)[1].role, Role::kAssistant);
}

struct BadCase {
  const char* json;
  const char* complaint;
};

TEST(ParseConversationTest, RefusesInvalidConversations) {
  const BadCase cases[] = {
      {"", "not valid JSON"},
      {"{\"conversations\": [", "not valid JSON"},
      {"[]", "`conversations`"},
      {"{}", "`conversations`"},
      {R"({"conversations": "hi"})", "`conversations`"},
      {R"({"conversations": []})", "has no turns"},
      {R"({"conversations": ["hi"]})", "turn 1"},
      {R"({"conversations": [{"value": "a"}]})", "turn 1: `from`"},
      {R"({"conversations": [{"from": "human"}]})", "turn 1: `value`"},
      {R"({"conversations": [{"from": "human", "value": 3}]})", "`value`"},
      {R"({"conversations": [{"from": "gpt", "value": "a"},
          {"from": "tool", "value": "b"}]})",
       "turn 2: unknown `from` \"tool\""},
      {R"({"messages": [{"role": "tool", "content": "b"}]})",
       "turn 1: unknown `role` \"tool\""},
      {R"({"messages": [{"role": "user"}]})", "turn 1: `content` is missing"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "`content`"},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})",
       "turn 1: content part 1: not an object"},
      {R"({"messages": [{"role": "user", "content": [
          {"type": "text", "text": "a"}, {"type": "text"}]}]})",
       "content part 2: `text` is missing"},
      {R"({"messages": [{"role": "user", "content": [
          {"type": "input_audio"}]}]})",
       "type \"input_audio\" is not supported"},
  };
  for (const BadCase& bad : cases) {
    const auto turns = ParseConversation(bad.json);
    EXPECT_EQ(turns.status().code(), absl::StatusCode::kInvalidArgument)
        << bad.json;
    EXPECT_THAT(std::string(turns.status().message()), HasSubstr(bad.complaint))
        << bad.json;
  }
}

// They would be learnt as other turns than they are.
TEST(ParseConversationTest, RefusesTurnsThatAreNotLearntAsTheyStand) {
  const auto parse = [](const std::string& role, const std::string& keys) {
    return ParseConversation(
               absl::StrCat(
                   R"({"messages": [{"role": "user", "content": "q"}, {"role": ")",
                   role, R"(", "content": "a", )", keys, "}]}"))
        .status();
  };
  for (const char* keys : {R"("weight": 1.5)", R"("weight": -1)"}) {
    EXPECT_THAT(std::string(parse("assistant", keys).message()),
                HasSubstr("wanted 0 to 1"));
    EXPECT_TRUE(parse("user", keys).ok()) << keys;
  }
  EXPECT_EQ(parse("assistant", R"("weight": 1.5)").message(),
            "turn 2: `weight` is 1.5; wanted 0 to 1");
  // Text says nothing of how much a turn counts, and would count as 1.
  for (const char* keys :
       {R"("weight": "0.5")", R"("weight": "light")", R"("train": "false")",
        R"("loss": "False")", R"("train": [0])", R"("weight": {})"}) {
    EXPECT_THAT(std::string(parse("assistant", keys).message()),
                HasSubstr("; wanted 0 to 1"))
        << keys;
  }
  EXPECT_EQ(parse("assistant", R"("train": "false")").message(),
            "turn 2: `train` is 'false'; wanted 0 to 1");
  for (const char* keys :
       {R"("tool_calls": [{"id": "x"}])", R"("function_call": {"name": "x"})",
        R"("reasoning_content": "so")"}) {
    EXPECT_THAT(std::string(parse("assistant", keys).message()),
                HasSubstr("would not be learnt"))
        << keys;
    EXPECT_EQ(GetBadKind(parse("assistant", keys)), kForOwnTemplate);
  }
  EXPECT_EQ(GetBadKind(parse("observation", R"("name": "f")")),
            kForOwnTemplate);
  EXPECT_EQ(GetBadKind(parse("narrator", R"("name": "f")")), "");
  for (const char* keys :
       {R"("weight": 1)", R"("weight": 1.0)", R"("loss": true)",
        R"("train": null)", R"("tool_calls": null)", R"("tool_calls": [])",
        R"("reasoning_content": "")", R"("name": "x")", R"("loss": 1.25)",
        R"("loss": "low")", R"("weight": "")"}) {
    EXPECT_TRUE(parse("assistant", keys).ok()) << keys;
  }
}

TEST(ParseConversationTest, SaysHowMuchTurnsCount) {
  const auto weight = [](const std::string& keys) {
    const auto turns = ParseConversation(absl::StrCat(
        R"({"messages": [{"role": "user", "content": "q", "weight": 0}, )",
        R"({"role": "assistant", "content": "a", )", keys, "}]}"));
    EXPECT_TRUE(turns.ok()) << turns.status();
    EXPECT_EQ((*turns)[0].weight, 1) << "a question is not learnt";
    EXPECT_EQ((*turns)[1].number, 2u);
    return (*turns)[1].weight;
  };
  for (const char* keys :
       {R"("weight": 0)", R"("loss": false)", R"("train": false)",
        R"("loss": 0)", R"("weight": 1, "train": false)",
        R"("weight": 0.5, "train": false)"}) {
    EXPECT_EQ(weight(keys), 0) << keys;
  }
  EXPECT_EQ(weight(R"("weight": 0.5)"), 0.5f);
  EXPECT_EQ(weight(R"("weight": 0.1, "train": true)"), 0.1f);
  EXPECT_EQ(weight(R"("loss": 1.25, "weight": null)"), 1);
}

// ShareGPT's and OpenAI's files have them beside the turns.
TEST(ParseConversationTest, RefusesWhatStandsBesideTheTurns) {
  const auto parse = [](const std::string& key) {
    return ParseConversation(
               absl::StrCat(R"({"conversations": [{"from": "gpt", "value": )",
                            R"("a"}], )", key, "}"))
        .status();
  };
  EXPECT_THAT(std::string(parse(R"("system": "Be kind.")").message()),
              HasSubstr("`system` next to the turns is not read"));
  EXPECT_THAT(std::string(parse(R"("tools": [{"name": "x"}])").message()),
              HasSubstr("`tools` next to the turns is not read"));
  EXPECT_FALSE(parse(R"("tools": "[1]")").ok());
  for (const char* key :
       {R"("system": "")", R"("system": null)", R"("tools": [])",
        R"("tools": "")", R"("tools": "[]")", R"("system": 3)"}) {
    EXPECT_TRUE(parse(key).ok()) << key;
  }
}

TEST(ParseConversationTest, RefusesTwoListsOfTurns) {
  const std::string both =
      R"({"conversations": [{"from": "gpt", "value": "a"}], "messages": )";
  EXPECT_THAT(std::string(ParseConversation(
                              both + R"([{"role": "user", "content": "q"}]})")
                              .status()
                              .message()),
              HasSubstr("both `conversations` and `messages`"));
  EXPECT_TRUE(ParseConversation(both + "null}").ok());
  EXPECT_TRUE(ParseConversation(both + "[]}").ok());
}

TEST(CheckAllIsReadTest, FindsWhatIndexesLeaveOut) {
  for (const char* json :
       {R"({"messages": [{"role": "assistant", "thinking": "so"}]})",
        R"({"messages": [{"role": "assistant", "reasoning": "so"}]})",
        R"({"messages": [], "documents": [{"text": "d"}]})",
        R"({"messages": [], "functions": [1]})"}) {
    EXPECT_EQ(GetBadKind(CheckAllIsRead(json)), kForOwnTemplate) << json;
  }
  EXPECT_TRUE(CheckAllIsRead(R"({"messages": [{"role": "assistant",
      "content": "a", "thinking": null}], "documents": []})")
                  .ok());
}

// As Megatron-Bridge and files of columns have them.
TEST(ParseConversationTest, ReadsOtherListsOfTurns) {
  for (const char* json :
       {R"({"conversation": [{"role": "user", "content": "q"}]})",
        R"({"messages": "[{\"role\": \"user\", \"content\": \"q\"}]"})",
        R"({"conversations": [], "messages": [{"from": "human",
                                               "value": "q"}]})"}) {
    const auto turns = ParseConversation(json);
    ASSERT_TRUE(turns.ok()) << turns.status();
    ASSERT_EQ(turns->size(), 1u);
    EXPECT_EQ((*turns)[0].text, "q");
  }
}

TEST(ParseConversationTest, RefusesDeepNestingInsteadOfOverflowing) {
  const std::string deep(1 << 20, '[');
  EXPECT_FALSE(ParseConversation(deep).ok());
  EXPECT_FALSE(ParseConversation("{\"conversations\": " + deep).ok());
}

TEST(SplitAtImageMarksTest, ReturnsOnePieceMoreThanMarks) {
  EXPECT_THAT(SplitAtImageMarks("plain"), ElementsAre("plain"));
  EXPECT_THAT(SplitAtImageMarks(""), ElementsAre(""));
  EXPECT_THAT(SplitAtImageMarks("<image>\nWhat"), ElementsAre("", "\nWhat"));
  EXPECT_THAT(SplitAtImageMarks("a <image><image> b<image>"),
              ElementsAre("a ", "", " b", ""));
  EXPECT_THAT(SplitAtImageMarks("<Image><image"), ElementsAre("<Image><image"));
}

}  // namespace
}  // namespace ballast
