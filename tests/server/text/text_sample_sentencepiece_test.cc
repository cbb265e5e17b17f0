// Texts of samples with a SentencePiece model.

#include <string>

#include <gtest/gtest.h>

#include "server/config/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "server/text/tokenizer.h"

namespace ballast {
namespace {

// The text of a sample's supervised tokens and of all its tokens, special
// tokens spelled out.
struct Spelled {
  std::string supervised;
  std::string all;
};

Spelled Spell(const TextSample& sample, const Tokenizer& tokenizer) {
  Spelled spelled;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    EXPECT_TRUE(tokenizer.Decode({sample.ids[i]}, &spelled.all).ok());
    if (sample.labels[i] == -100) continue;
    EXPECT_EQ(sample.labels[i], sample.ids[i + 1]);
    EXPECT_TRUE(tokenizer.Decode({sample.labels[i]}, &spelled.supervised).ok());
  }
  return spelled;
}

TEST(TextSampleSentencePieceTest, TheModelsSpaceIsAddedAtTheBeginningOnly) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_tokenizer("tests/server/text/sentencepiece/testdata/symbols.model");
  model.set_chat_template("chatml");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const TileShape square = {56, 56};  // four tokens
  const auto build = [&](const char* text) {
    const auto of_model = ModelText::Create(model, tokenizer->get()).value();
    return BuildText(text, TextForm::kConversation,
                     std::vector<TileShape>{square}, {of_model.get(), 1000});
  };
  const std::string image =
      "<|vision_start|><|image_pad|><|image_pad|><|image_pad|><|image_pad|>"
      "<|vision_end|>";
  const char* json =
      R"({"messages": [{"role": "user", "content": "<image>What 😀?"},)"
      R"( {"role": "assistant", "content": "😀 A fox 😀"}]})";
  auto sample = build(json);
  ASSERT_TRUE(sample.ok()) << sample.status();
  Spelled spelled = Spell(*sample, **tokenizer);
  EXPECT_EQ(spelled.all, "<|im_start|>user\n" + image +
                             "What 😀?<|im_end|>\n<|im_start|>assistant\n"
                             "😀 A fox 😀<|im_end|>\n");
  EXPECT_EQ(spelled.supervised, "😀 A fox 😀<|im_end|>");
  // Vicuna's template: the text starts with a symbol of the model, or with a
  // word.
  model.set_chat_template("custom");
  v1::ChatTemplate* chat = model.mutable_custom_template();
  chat->set_begin("<s>");
  chat->mutable_user()->set_prefix("USER: ");
  chat->mutable_user()->set_suffix(" ");
  chat->mutable_assistant()->set_prefix("ASSISTANT: ");
  chat->mutable_assistant()->set_end("</s>");
  chat->mutable_assistant()->set_supervised(true);
  sample = build(json);
  ASSERT_TRUE(sample.ok()) << sample.status();
  spelled = Spell(*sample, **tokenizer);
  EXPECT_EQ(spelled.all,
            "<s>USER: " + image + "What 😀? ASSISTANT: 😀 A fox 😀</s>");
  EXPECT_EQ(spelled.supervised, "😀 A fox 😀</s>");
  chat->clear_begin();
  sample = build(json);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(Spell(*sample, **tokenizer).all.substr(0, 7), " USER: ");
}

}  // namespace
}  // namespace ballast
