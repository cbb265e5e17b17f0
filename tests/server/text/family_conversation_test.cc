// Compares conversations with images with the ids of the model families'
// processors, as written by check_family_chats.py.
#include "server/text/family_conversation.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/image_plan/image_family.h"
#include "server/text/family_template.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kTestData[] = "tests/server/text/testdata/";

const Tokenizer& FamilyTokenizer() {
  static const auto& tokenizer =
      *MakeTokenizer(std::string(kTestData) + "family_chats.tokenizer.json")
           .value()
           .release();
  return tokenizer;
}

absl::StatusOr<TextSample> Tokenize(const std::string& family,
                                    const std::vector<Turn>& turns,
                                    const std::vector<TileShape>& sizes) {
  const auto chat = FindFamilyTemplate(family);
  if (!chat.ok()) return chat.status();
  return TokenizeFamilyConversation(
      turns, sizes, ImagePlanner::Create(*FindImageFamily(family)).value(),
      *chat, FamilyTokenizer());
}

// Ids of a vector: a number, or [number, count] for a run.
std::vector<int32_t> IdsOf(const nlohmann::json& runs) {
  std::vector<int32_t> ids;
  for (const nlohmann::json& run : runs) {
    if (run.is_array()) {
      ids.insert(ids.end(), run[1].get<size_t>(), run[0].get<int32_t>());
    } else {
      ids.push_back(run.get<int32_t>());
    }
  }
  return ids;
}

TEST(FamilyConversationTest, IdsEqualThoseOfTheProcessors) {
  const nlohmann::json vectors =
      ReadJsonOrFail(std::string(kTestData) + "family_chats.json");
  std::set<std::string> families;
  for (const nlohmann::json& vector : vectors) {
    SCOPED_TRACE(vector["family"].dump() + vector["messages"].dump());
    families.insert(vector["family"].get<std::string>());
    std::vector<TileShape> sizes;
    for (const nlohmann::json& size : vector["images"]) {
      sizes.push_back({size[0], size[1]});
    }
    const auto turns = ParseConversation(
        nlohmann::json{{"messages", vector["messages"]}}.dump());
    ASSERT_TRUE(turns.ok()) << turns.status();
    const auto sample = Tokenize(vector["family"], *turns, sizes);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->ids, IdsOf(vector["ids"]));
    EXPECT_EQ(sample->labels.size(), sample->ids.size());
  }
  // Not of transformers: family_videos_test.
  families.insert("llava_video");
  EXPECT_THAT(FamilyTemplateNames(), ::testing::ElementsAreArray(families));
}

// What the assistant says, and the end of its turn.
TEST(FamilyConversationTest, LabelsSpellTheSupervisedText) {
  const std::vector<Turn> turns = {
      {Role::kUser, "<image>Where?"},
      {Role::kAssistant, "Here."},
      {Role::kUser, "Sure?"},
      {Role::kAssistant, "Yes"},
  };
  const auto learnt = [&](const std::string& family) {
    const auto sample = Tokenize(family, turns, {{400, 500}});
    EXPECT_TRUE(sample.ok()) << sample.status();
    std::string text;
    uint32_t labels = 0;
    for (const int32_t label : sample->labels) {
      if (label == -100) continue;
      ++labels;
      EXPECT_TRUE(FamilyTokenizer().Decode({label}, &text).ok());
    }
    EXPECT_EQ(sample->label_tokens, labels);
    return text;
  };
  EXPECT_EQ(learnt("internvl3"), "Here.<|im_end|>Yes<|im_end|>");
  EXPECT_EQ(learnt("gemma3"), "Here.<end_of_turn>Yes<end_of_turn>");
  EXPECT_EQ(learnt("llava1_5"), "Here. Yes ");
  EXPECT_EQ(learnt("pixtral"), "Here.</s>Yes</s>");
  EXPECT_EQ(learnt("kimi_k25"), "Here.<|im_end|>Yes<|im_end|>");
  EXPECT_EQ(learnt("minicpmv4_6"), "Here.<|im_end|>Yes<|im_end|>");
}

TEST(FamilyConversationTest, RefusesWhatATemplateDoesNotRender) {
  const auto message = [](const std::string& family,
                          const std::vector<Turn>& turns,
                          const std::vector<TileShape>& sizes) {
    return std::string(Tokenize(family, turns, sizes).status().message());
  };
  EXPECT_EQ(message("pixtral", {{Role::kSystem, "Be"}}, {}),
            "turn 1 is of the system; the chat template of pixtral wants no "
            "system turn");
  EXPECT_THAT(
      message("gemma3", {{Role::kUser, "a"}, {Role::kUser, "b"}}, {}),
      HasSubstr("turn 2 is of the user; the chat template of gemma3 wants user "
                "and assistant in turn"));
  EXPECT_THAT(message("gemma3", {{Role::kSystem, "a"}}, {}),
              HasSubstr("only before the first turn of the user"));
  EXPECT_EQ(message("internvl3", {{Role::kUser, "<image>"}}, {}),
            "the conversation has more <image> marks than its 0 images");
  EXPECT_EQ(message("internvl3", {{Role::kUser, "<image>"}}, {{9, 9}, {9, 9}}),
            "the conversation has 1 <image> marks for 2 images");
  EXPECT_THAT(message("internvl3", {{Role::kUser, "<IMG_CONTEXT>"}}, {}),
              HasSubstr("spells out token"));
  EXPECT_EQ(message("minicpmv4_6", {{Role::kAssistant, "a"}}, {}),
            "no turn of the user asks; the chat template of minicpmv4_6 wants "
            "one");
  EXPECT_THAT(
      message("minicpmv4_6", {{Role::kUser, "a"}, {Role::kSystem, "b"}}, {}),
      HasSubstr("a system turn only at the start"));
  EXPECT_THAT(
      message("minicpmv4_6", {{Role::kSystem, "<image>"}, {Role::kUser, "b"}},
              {{9, 9}}),
      HasSubstr("without images"));
  for (const char* family : {"kimi_k25", "minicpmv4_6"}) {
    EXPECT_THAT(
        message(family,
                {{Role::kUser, "a"}, {Role::kAssistant, "<think>b</think>c"}},
                {}),
        HasSubstr("turn 2 is of the assistant"));
  }
  EXPECT_THAT(message("ernie4_5_vl", {{Role::kUser, "a"}}, {}),
              HasSubstr("the chat template of the family ernie4_5_vl is not "
                        "covered; wanted one of gemma3, "));
}

TEST(FamilyConversationTest, NamesATokenThatTheTokenizerLacks) {
  const auto bytes = MakeTokenizer("bytes");
  const auto status =
      TokenizeFamilyConversation(
          {}, {}, ImagePlanner::Create(*FindImageFamily("internvl3")).value(),
          FindFamilyTemplate("internvl3").value(), **bytes)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the tokenizer lacks the token <|im_start|> of the family "
            "internvl3; give the tokenizer of its checkpoint");
}

}  // namespace
}  // namespace ballast
