#include "server/text/chat_writer.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/profiles.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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
