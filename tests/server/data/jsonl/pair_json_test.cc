#include "server/data/jsonl/pair_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kAsk[] = R"({"role":"user","content":"q"})";
constexpr char kYes[] = R"({"role":"assistant","content":"yes"})";
constexpr char kNo[] = R"({"role":"assistant","content":"no"})";
constexpr char kEarlier[] = R"({"role":"assistant","content":"so"})";
constexpr char kNotLearnt[] =
    R"({"role":"assistant","content":"so","weight":0})";

// Of a record of these entries, the conversations; "" if it is no pair, and
// what is wrong if it is a bad one.
std::string Split(const std::string& entries, size_t images = 0) {
  std::string text = absl::StrCat("{", entries, "}");
  const std::string before = text;
  const auto is_pair = SplitPair(images, &text);
  if (!is_pair.ok()) return std::string(is_pair.status().message());
  if (!*is_pair) {
    EXPECT_EQ(text, before);
    return "";
  }
  const PairTexts pair = GetPairTexts(text);
  // The record of a pair is that pair again.
  std::string again = GetPairRecord(text);
  EXPECT_TRUE(SplitPair(images, &again).value_or(false)) << again;
  EXPECT_EQ(again, text);
  return absl::StrCat(pair.chosen, " ", pair.rejected);
}

std::string Both(const std::string& prompt, const std::string& yes,
                 const std::string& no, const std::string& beside = "") {
  return absl::StrCat("{\"messages\":[", prompt, ",", yes, "]", beside,
                      "} {\"messages\":[", prompt, ",", no, "]", beside, "}");
}

TEST(PairJsonTest, ReadsEveryForm) {
  const std::string wanted = Both(kAsk, kYes, kNo);
  const std::string ask = kAsk, yes = kYes, no = kNo;
  for (const std::string& entries : {
           // Texts, turns and lists of turns.
           std::string(R"("prompt": "q", "chosen": "yes", "rejected": "no")"),
           absl::StrCat("\"prompt\": [", ask, "], \"chosen\": [", yes,
                        "], \"rejected\": [", no, "]"),
           absl::StrCat("\"prompt\": \"q\", \"chosen\": ", yes,
                        ", \"rejected\": ", no),
           absl::StrCat("\"messages\": [", ask, "], \"chosen\": [", yes,
                        "], \"rejected\": [", no, "]"),
           // The prompt in both; also, as UltraFeedback has it, three times.
           absl::StrCat("\"chosen\": [", ask, ",", yes, "], \"rejected\": [",
                        ask, ",", no, "]"),
           absl::StrCat("\"prompt\": [", ask, "], \"chosen\": [", ask, ",", yes,
                        "], \"rejected\": [", ask, ",", no, "]"),
           absl::StrCat(R"("prompt": "q", "chosen": [)", ask, ",", yes,
                        "], \"messages\": [", ask, ",", yes,
                        "], \"rejected\": [", ask, ",", no, "]"),
           // A conversation, and another answer to it.
           absl::StrCat("\"messages\": [", ask, ",", yes,
                        R"(], "rejected_response": "no")"),
           absl::StrCat("\"messages\": [", ask, ",", yes,
                        R"(], "rejected": "no")"),
           absl::StrCat("\"messages\": [", ask, ",", yes,
                        "], \"rejected_messages\": [", ask, ",", no, "]"),
           // Keys in another order, JSON as a text, keys that say nothing.
           std::string(
               R"("chosen": [{"content": "q", "role": "user"},
                  {"content": "yes", "role": "assistant"}],
                  "rejected": "[{\"role\": \"user\", \"content\": \"q\"},)"
               R"({\"role\": \"assistant\", \"content\": \"no\"}]", )"
               R"("rejected_response": null, "messages": [])"),
       }) {
    EXPECT_EQ(Split(entries), wanted) << entries;
  }
  EXPECT_EQ(
      Split(R"("conversations": [{"from": "human", "value": "q"}],
               "chosen": {"from": "gpt", "value": "yes"},
               "rejected": {"from": "gpt", "value": "no"})"),
      Both(R"({"from":"human","value":"q"})", R"({"from":"gpt","value":"yes"})",
           R"({"from":"gpt","value":"no"})"));
  EXPECT_EQ(
      Split(R"("conversations": [{"from": "human", "value": "q"},
               {"from": "gpt", "value": "yes"}], "rejected_response": "no")"),
      Both(R"({"from":"human","value":"q"})", R"({"from":"gpt","value":"yes"})",
           R"({"from":"gpt","value":"no"})"));
}

// A key may be spelled with escapes; one such letter is enough to hide it.
TEST(PairJsonTest, SeesKeysThatAreEscaped) {
  const std::string ask = kAsk, yes = kYes, no = kNo;
  EXPECT_EQ(Split(absl::StrCat("\"messages\": [", ask, ",", yes,
                               R"(], "\u0072ejected_response": "no")")),
            Both(ask, yes, no));
  EXPECT_EQ(Split(R"("prompt": "q", "chose\u006E": "yes",
                     "r\u0065jected": "no")"),
            Both(ask, yes, no));
  EXPECT_EQ(Split(absl::StrCat("\"messages\": [", ask, ",", yes,
                               R"(], "x": "\u0072ejected")")),
            "");
}

TEST(PairJsonTest, LearnsNoAnswerOfThePrompt) {
  const std::string ask = kAsk, so = kEarlier;
  const std::string prompt = absl::StrCat(ask, ",", kNotLearnt, ",", ask);
  const std::string given = absl::StrCat(ask, ",", so, ",", ask);
  EXPECT_EQ(Split(absl::StrCat("\"prompt\": [", given, "], \"chosen\": [", kYes,
                               "], \"rejected\": [", kNo, "]")),
            Both(prompt, kYes, kNo));
  EXPECT_EQ(Split(absl::StrCat("\"chosen\": [", given, ",", kYes,
                               "], \"rejected\": [", given, ",", kNo, "]")),
            Both(prompt, kYes, kNo));
  // A weight of an answer stays; in the prompt it is 0.
  const std::string heavy =
      R"({"role":"assistant","content":"so","weight":0.5})";
  EXPECT_EQ(Split(absl::StrCat("\"prompt\": [", ask, ",", heavy, ",", ask,
                               "], \"chosen\": [", heavy, "], \"rejected\": [",
                               kNo, "]")),
            Both(prompt, heavy, kNo));
}

TEST(PairJsonTest, KeepsWhatStandsBeside) {
  EXPECT_EQ(Split(R"("prompt": "q", "tools": [{"a": 1}], "chosen": "yes",
                     "rejected": "no", "margin": 0.5, "system": "s\"")"),
            Both(kAsk, kYes, kNo,
                 R"(,"tools":[{"a":1}],"margin":0.5,"system":"s\"")"));
}

TEST(PairJsonTest, MarksImagesAsTrlDoes) {
  const auto both = [](const std::string& content) {
    return Both(absl::StrCat(R"({"role":"user","content":)", content, "}"),
                kYes, kNo);
  };
  const std::string answers = R"(, "chosen": "yes", "rejected": "no")";
  EXPECT_EQ(Split(R"("prompt": "q")" + answers, 2),
            both(R"("<image><image>q")"));
  EXPECT_EQ(Split(R"("prompt": "q<image>")" + answers, 1),
            both(R"("q<image>")"));
  const std::string part = R"({"type":"text","text":"q"})";
  EXPECT_EQ(
      Split(absl::StrCat(R"("prompt": [{"role": "user", "content": [)", part,
                         "]}]", answers),
            1),
      both(absl::StrCat(R"([{"type":"text","text":"<image>"},)", part, "]")));
  const std::string image = R"([{"type":"image"},{"type":"text","text":"q"}])";
  EXPECT_EQ(Split(absl::StrCat(R"("prompt": [{"role": "user", "content": )",
                               image, "}]", answers),
                  1),
            both(image));
}

TEST(PairJsonTest, PassesOverOtherRecords) {
  const std::string turns =
      absl::StrCat("\"messages\": [", kAsk, ",", kYes, "]");
  EXPECT_EQ(Split(turns), "");
  for (const char* flag :
       {R"("rejected": false)", R"("rejected": null)", R"("rejected": [])",
        R"("chosen": 1)", R"("chosen": "")", R"("x": "\"rejected\"")"}) {
    EXPECT_EQ(Split(absl::StrCat(turns, ", ", flag)), "") << flag;
  }
}

TEST(PairJsonTest, SaysWhatIsWrong) {
  const std::string ask = kAsk, yes = kYes, no = kNo;
  const struct {
    std::string entries;
    const char* wanted;
  } kCases[] = {
      {R"("prompt": "q", "chosen": "yes")", "half a preference pair"},
      {R"("prompt": "q", "rejected": "no")", "half a preference pair"},
      {R"("messages": [{"role": "user", "content": "a"}], "rejected": "no")",
       "half a preference pair"},
      {R"("chosen": "yes", "rejected": "no")", "there is no `prompt`"},
      {R"("prompt": "q", "chosen": "yes", "rejected": "yes")", "are the same"},
      {absl::StrCat("\"chosen\": [", ask, ",", yes, "], \"rejected\": [", ask,
                    "]"),
       "no turn of an assistant after the prompt"},
      {absl::StrCat(R"("prompt": "other", "chosen": [)", ask, ",", yes,
                    "], \"rejected\": [", ask, ",", no, "]"),
       "`prompt` is another text"},
      {absl::StrCat(R"("prompt": "q", "messages": [)", ask,
                    R"(], "chosen": "yes", "rejected": "no")"),
       "`prompt` and `messages` may both be the prompt"},
      {R"("prompt": "q", "chosen": "yes", "rejected": "no",
          "rejected_response": "never")",
       "`rejected` and `rejected_response`"},
      {R"("prompt": "q", "chosen": ["yes"], "rejected": "no")",
       "key `chosen` of a pair: a list of others than turns"},
      {R"("prompt": "q", "chosen": [{"content": "yes"}], "rejected": "no")",
       "a turn without `role` or `from`"},
      {R"("prompt": "q", "chosen": "<image>", "rejected": "no")",
       "an image in an answer"},
      {absl::StrCat("\"messages\": [", ask, ",", yes,
                    R"(], "rejected_messages": [{"role": "user", "content":
                    "z"}, )",
                    no, "]"),
       "begin with different turns"},
      {"\"prompt\": \"\xff\", \"chosen\": \"yes\", \"rejected\": \"no\"",
       "read in UTF-8 alone"},
  };
  for (const auto& each : kCases) {
    EXPECT_THAT(Split(each.entries), HasSubstr(each.wanted)) << each.entries;
  }
}

}  // namespace
}  // namespace ballast
