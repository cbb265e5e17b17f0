// Compares conversations with Hugging Face's ids, as written by
// make_chat_vectors.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/text/bpe/bpe_tokenizer.h"
#include "server/text/chat_writer.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTestData[] = "tests/server/text/testdata/";

v1::Model MakeModel(const nlohmann::json& expected) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  // Images are not enlarged: each has the tokens that a case states.
  model.set_min_pixels(1);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  model.set_tokenizer(std::string(kTestData) + "chat.tokenizer.json");
  model.set_chat_template(expected["template"]);
  model.set_system_prompt(expected["system_prompt"]);
  if (model.chat_template() == "custom") {
    v1::ChatTemplate* custom = model.mutable_custom_template();
    custom->set_begin("<|begin_of_text|>");
    custom->mutable_system()->set_suffix(" ");
    custom->mutable_user()->set_prefix("USER: ");
    custom->mutable_user()->set_suffix(" ");
    custom->mutable_assistant()->set_prefix("ASSISTANT: ");
    custom->mutable_assistant()->set_end("<|endoftext|>");
    custom->mutable_assistant()->set_supervised(true);
  }
  return model;
}

TEST(ChatVectorsTest, IdsAndLabelsEqualHuggingFaces) {
  const nlohmann::json cases =
      ReadJsonOrFail(std::string(kTestData) + "chat.json");
  ASSERT_GT(cases.size(), 30u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected["template"].dump() + expected["messages"].dump());
    v1::Model model = MakeModel(expected);
    const auto tokenizer = OpenModelTokenizer(&model);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    std::vector<ImageSize> images;
    for (const uint32_t tokens : expected["image_tokens"]) {
      images.push_back({.width = 2 * 14 * tokens, .height = 2 * 14});
    }
    const std::string text =
        nlohmann::json{{"messages", expected["messages"]}}.dump();
    const auto of_model = ModelText::Create(model, tokenizer->get());
    ASSERT_TRUE(of_model.ok()) << of_model.status();
    const TextOptions options = {of_model->get(), 4096};
    const auto sample =
        BuildText(text, TextForm::kConversation, images, options);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->ids, expected["ids"].get<std::vector<int32_t>>());
    std::vector<int32_t> labels;
    uint32_t learnt = 0;
    for (size_t i = 1; i <= sample->ids.size(); ++i) {
      const bool next = i < sample->ids.size() && expected["learnt"][i] == 1;
      labels.push_back(next ? sample->ids[i] : -100);
      learnt += next;
    }
    EXPECT_EQ(sample->labels, labels);
    EXPECT_EQ(sample->label_tokens, learnt);
    const auto measured =
        MeasureText(text, TextForm::kConversation, images, options);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->label_tokens, learnt);
  }
}

// Shows the supervised tokens as text: the assistant's and the end of its turn.
TEST(ChatVectorsTest, LabelsSpellTheSupervisedText) {
  const nlohmann::json chatml = {{"template", "chatml"}, {"system_prompt", ""}};
  v1::Model model = MakeModel(chatml);
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto of_model = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(of_model.ok()) << of_model.status();
  const TextOptions options = {of_model->get(), 4096};
  const auto learnt = [&](const nlohmann::json& turns, size_t images) {
    const std::vector<ImageSize> grids(images, ImageSize{56, 28});
    const auto sample = BuildText(nlohmann::json{{"messages", turns}}.dump(),
                                  TextForm::kConversation, grids, options);
    EXPECT_TRUE(sample.ok()) << sample.status();
    std::string text;
    for (const int32_t label : sample->labels) {
      if (label < 0) continue;
      EXPECT_TRUE((*tokenizer)->Decode({label}, &text).ok());
    }
    return text;
  };
  const auto turn = [](const char* role, const char* content) {
    return nlohmann::json{{"role", role}, {"content", content}};
  };
  EXPECT_EQ(learnt({turn("system", "Look."), turn("user", "<image>Hi"),
                    turn("assistant", "the quick brown"), turn("user", "More"),
                    turn("assistant", "fox <image> é\n")},
                   2),
            "the quick brown<|im_end|>fox  é\n<|im_end|>");
  EXPECT_EQ(learnt(nlohmann::json::array({turn("user", "Hi")}), 0), "");
}

TEST(ChatTokensTest, SupervisesATokenAcrossTheSeamAsAWhole) {
  const auto tokenizer =
      MakeBpeTokenizer(SmallTokenizerJson({{"\u010a", "\u010a"}}).dump());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_chat_template("chatml");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const auto of_model = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(of_model.ok()) << of_model.status();
  const TextOptions options = {of_model->get(), 4096};
  const auto sample =
      BuildText(R"({"messages": [{"role": "assistant", "content": "\nx"}]})",
                TextForm::kConversation, {}, options);
  ASSERT_TRUE(sample.ok()) << sample.status();
  // The template's line feed and the message's together are token 256.
  const int32_t start = 151644;
  const int32_t end = 151645;
  EXPECT_THAT(sample->ids, ElementsAre(start, 'a', 's', 's', 'i', 's', 't', 'a',
                                       'n', 't', 256, 'x', end, '\n'));
  EXPECT_THAT(sample->labels,
              ElementsAre(-100, -100, -100, -100, -100, -100, -100, -100, -100,
                          256, 'x', end, -100, -100));
}

// A spelled-out image token would pass for a placeholder.
TEST(ChatTokensTest, RefusesASpelledOutImageToken) {
  v1::Model model = MakeModel({{"template", "chatml"}, {"system_prompt", ""}});
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto of_model = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(of_model.ok()) << of_model.status();
  const TextOptions options = {of_model->get(), 4096};
  for (const char* text : {"a <|image_pad|>", "<|video_pad|>"}) {
    const absl::Status status =
        BuildText(text, TextForm::kDocument, {}, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("spells out token"));
  }
}

using ::testing::AllOf;
using ::testing::IsEmpty;

// The lines of checkpoints' files that tell them apart.
constexpr char kGlm41[] =
    "[gMASK]<sop>{%- for msg in messages %}{%- if msg.role == 'user' %}"
    "<|user|>\n<|begin_of_image|><|image|><|end_of_image|>{%- endif %}";
constexpr char kGlm46[] =
    "[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>"
    "{%- if reasoning_content %}<think>{% else %}{{ '\\n<think></think>' }}";
constexpr char kVicuna[] =
    "{{ message['role'].upper() + ': '}}{% if add_generation_prompt %}"
    "{{ 'ASSISTANT:' }}{% endif %}";
constexpr char kMistral[] =
    "{% if message['role'] == 'user' %}{{ '[INST] ' }}<image>\n{{ ' [/INST]' "
    "}}";
constexpr char kMistralSmall[] =
    "{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}"
    "{{- '[INST]' }}[IMG]{{- '[/INST]' }}";

std::string TemplateFault(absl::string_view name, absl::string_view own) {
  return ::ballast::TemplateFault(FindChat(name), own);
}

TEST(TemplateFaultTest, TellsCheckpointsOfOneFamilyApart) {
  EXPECT_EQ(TemplateFault("glm4v", kGlm41), "");
  EXPECT_EQ(TemplateFault("glm4v", kGlm46), "has \"<think>\"");
  EXPECT_EQ(TemplateFault("glm46v", kGlm46), "");
  EXPECT_EQ(TemplateFault("glm46v", kGlm41), "lacks \"<think></think>\"");
  EXPECT_EQ(TemplateFault("llava_next", kVicuna), "");
  EXPECT_EQ(TemplateFault("llava_next", kMistral), "lacks \".upper()\"");
  EXPECT_EQ(TemplateFault("pixtral", kMistral), "");
  EXPECT_EQ(TemplateFault("pixtral", kMistralSmall), "has \"[SYSTEM_PROMPT]\"");
  EXPECT_EQ(TemplateFault("gemma4", "'<|turn>' + role + '\\n' <|image|>"), "");
  EXPECT_EQ(TemplateFault("gemma4", "'<|turn>' '\\n\\n<|image|>\\n\\n'"),
            "has \"\\n<|image|>\"");
}

TEST(TemplateFaultTest, EveryFamilyHasASign) {
  for (const std::string& family : ProfileNames(HasChat)) {
    EXPECT_NE(TemplateFault(family, "{{ messages }}"), "") << family;
    EXPECT_EQ(TemplateFault(family, ""), "") << family;
  }
  EXPECT_EQ(TemplateFault("chatml", kMistral), "");
  EXPECT_EQ(TemplateFault("", kMistral), "");
}

TEST(OwnTemplateTest, IsThatOfTheFirstFile) {
  const std::string json = R"({"chat_template": "json \n"})";
  const std::string config =
      R"({"added_tokens_decoder": {"1": "<think>"}, "chat_template": "config"})";
  EXPECT_EQ(OwnTemplate({"jinja", json, config}), "jinja");
  EXPECT_EQ(OwnTemplate({"", json, config}), "json \n");
  EXPECT_EQ(OwnTemplate({"", "", config}), "config");
  EXPECT_EQ(OwnTemplate({"", "", R"({"chat_template":
      [{"name": "tool_use", "template": "a"},
       {"name": "default", "template": "b"}]})"}),
            "b");
  for (const char* none :
       {"", "{", "[]", "7", "{}", R"({"chat_template": null})",
        R"({"chat_template": 7})", R"({"chat_template": [7, {"name": 1}]})",
        R"({"chat_template": [{"name": "default", "template": 3}]})",
        R"({"added_tokens_decoder": {"1": "<think>"}})"}) {
    EXPECT_EQ(OwnTemplate({"", none, none}), "") << none;
  }
}

TEST(TemplateWarningsTest, ReadsTheFilesBesideTheTokenizer) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/own_template");
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  v1::Model model;
  model.set_tokenizer(folder + "/tokenizer.json");
  model.set_chat_template("glm4v");
  EXPECT_THAT(TemplateWarnings(model), IsEmpty());
  std::ofstream(folder + "/chat_template.jinja") << kGlm46;
  EXPECT_THAT(
      TemplateWarnings(model),
      ElementsAre(AllOf(HasSubstr("model.chat_template: found glm4v"),
                        HasSubstr(folder + "/tokenizer.json has \"<think>\""),
                        HasSubstr("custom"))));
  model.set_chat_template("glm46v");
  EXPECT_THAT(TemplateWarnings(model), IsEmpty());
  model.set_chat_template("chatml");
  EXPECT_THAT(TemplateWarnings(model), IsEmpty());
  model.set_chat_template("glm4v");
  model.set_tokenizer("bytes");
  EXPECT_THAT(TemplateWarnings(model), IsEmpty());
}

}  // namespace
}  // namespace ballast
