#include "server/text/template/jinja_template.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class JinjaTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(folder_, "/", name)) << text;
  }
  std::string tokenizer() const { return folder_ + "/tokenizer.json"; }

  std::string folder_;
};

TEST_F(JinjaTemplateTest, StandsBesideTheTokenizer) {
  const auto none = ReadJinjaTemplate(tokenizer());
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("wanted chat_template.jinja there"));
  Write("tokenizer_config.json",
        R"({"chat_template": "of the config", "bos_token": "<s>",
            "eos_token": {"content": "</s>"}, "pad_token": null})");
  Write("special_tokens_map.json", R"({"bos_token": "no", "unk_token": "u"})");
  auto read = ReadJinjaTemplate(tokenizer());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->text, "of the config");
  EXPECT_EQ(read->variables,
            R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"u"})");
  Write("chat_template.jinja", "of its own");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->text, "of its own");
}

TEST_F(JinjaTemplateTest, ToolsMayHaveATemplate) {
  Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->text, "plain");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "tools");
  const std::string hash = ReadJinjaTemplate(tokenizer())->hash();
  Write("chat_template.jinja", "plain");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "");
  EXPECT_NE(ReadJinjaTemplate(tokenizer())->hash(), hash);
  std::filesystem::create_directories(folder_ + "/additional_chat_templates");
  Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "tools");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->hash(), hash);
}

TEST_F(JinjaTemplateTest, TheNameFollowsTextVariablesAndVersion) {
  const JinjaTemplate one = {.text = "a"};
  const JinjaTemplate other = {.text = "b"};
  const JinjaTemplate variables = {.text = "a", .variables = R"({"a":"b"})"};
  EXPECT_NE(one.hash(), other.hash());
  EXPECT_NE(one.hash(), variables.hash());
  EXPECT_EQ(CheckpointTemplateName(one, "3.1.6"),
            absl::StrCat("checkpoint@", one.hash(), "+jinja2-3.1.6"));
  EXPECT_TRUE(IsCheckpointTemplate("checkpoint"));
  EXPECT_TRUE(IsCheckpointTemplate(CheckpointTemplateName(one, "3.1.6")));
  EXPECT_FALSE(IsCheckpointTemplate("chatml"));
}

}  // namespace
}  // namespace ballast
