#include "server/job/template_comparison.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/template/template_renderer.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FirstDifferenceTest, ShowsBothTexts) {
  EXPECT_EQ(FirstDifference("a b", "a b"), "");
  EXPECT_EQ(FirstDifference("a bc\n", "a bd"),
            "at byte 3 the checkpoint's has \"c\\n\", the built-in \"d\"");
  EXPECT_EQ(FirstDifference("a", "a b"),
            "at byte 1 the checkpoint's has its end, the built-in \" b\"");
  EXPECT_EQ(FirstDifference("", "b"),
            "at byte 0 the checkpoint's has its end, the built-in \"b\"");
}

TEST(TemplateComparisonTest, SaysWhereTheCheckpointWritesOtherwise) {
  const auto trial = TemplateRenderer::Create({.text = "x"}, {});
  if (!trial.ok()) GTEST_SKIP() << trial.status().message();
  const std::string folder = ::testing::TempDir() + "/compared";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(
      "tests/server/text/testdata/family_chats.tokenizer.json",
      folder + "/tokenizer.json",
      std::filesystem::copy_options::overwrite_existing);
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  model.set_chat_template("chatml");
  model.set_tokenizer(folder + "/tokenizer.json");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto text = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(TemplateComparison::Create(text->get(), tokenizer->get()), nullptr);
  const std::string equal =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
      "{%- if m.content is string %}{{ m.content }}{% else %}"
      "{%- for p in m.content %}{{ p.text if p.type == 'text' else "
      "'<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}{% endif %}"
      "{{- '<|im_end|>\\n' }}{% endfor %}";
  RawSample sample;
  sample.name = "chat.jsonl:3";
  sample.text = R"({"messages": [{"role": "user", "content": "<image>Why?"},
                                 {"role": "assistant", "content": "So."}]})";
  const auto difference = [&](const std::string& own) {
    std::ofstream(folder + "/chat_template.jinja") << own;
    const auto comparison =
        TemplateComparison::Create(text->get(), tokenizer->get());
    EXPECT_NE(comparison, nullptr);
    comparison->Look(sample, 1);
    return comparison->TakeDifference();
  };
  EXPECT_EQ(difference(equal), "");
  EXPECT_THAT(
      difference("{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}" + equal),
      AllOf(HasSubstr("chatml writes chat.jsonl:3 otherwise"),
            HasSubstr("at byte 12 the checkpoint's has \"system\\nBe kind."),
            HasSubstr("the built-in \"user\\n<image>Why?"),
            HasSubstr("name chat_template: checkpoint")));
  EXPECT_THAT(difference("{{ raise_exception('No.') }}"), HasSubstr("No."));
}

}  // namespace
}  // namespace ballast
