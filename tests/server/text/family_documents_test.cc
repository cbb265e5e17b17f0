// Marks around images in texts that no chat template of the family formats:
// documents, other chat templates, token ids.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kTokenizer[] =
    "tests/server/text/testdata/family_chats.tokenizer.json";

// A family whose processor writes placeholders alone, and the marks around them
// that its model knows: by the processors' names of tokens (ERNIE, HunyuanVL)
// and around frames (GLM, Kimi).
struct Marked {
  const char* family;
  const char* before;
  const char* after;
  uint32_t placeholders;  // of an image of 560x560 pixels
};
const Marked kMarked[] = {
    {"ernie4_5_vl", "<|IMAGE_START|>", "<|IMAGE_END|>", 400},
    {"glm46v", "<|begin_of_image|>", "<|end_of_image|>", 400},
    {"glm4v", "<|begin_of_image|>", "<|end_of_image|>", 400},
    // A newline after each of 18 rows, and both ends.
    {"hunyuan_vl", "<｜hy_place▁holder▁no▁100｜>",
     "<｜hy_place▁holder▁no▁101｜>", 18 * 19 + 2},
    {"kimi_k25", "<|media_begin|>image<|media_content|>", "<|media_end|>", 400},
};
const std::vector<TileShape> kOne = {{560, 560}};

// The texts of one model.
class Texts {
 public:
  explicit Texts(const std::string& profile, const std::string& chat,
                 v1::Model model = {})
      : model_(std::move(model)) {
    model_.set_profile(profile);
    model_.set_chat_template(chat);
    model_.set_tokenizer(kTokenizer);
    model_.mutable_token_ids()->set_end_of_text(7);
    EXPECT_TRUE(ApplyModelProfile(&model_).ok());
    tokenizer_ = OpenModelTokenizer(&model_).value();
    auto family = ModelText::Create(model_, tokenizer_.get());
    EXPECT_TRUE(family.ok()) << family.status();
    if (family.ok()) family_ = *std::move(family);
    options_ = {family_.get(), 1u << 20};
  }

  absl::StatusOr<TextSample> Build(
      const std::string& text, TextForm form,
      const std::vector<TileShape>& sizes = kOne) const {
    auto built = BuildText(text, form, sizes, options_);
    if (!built.ok()) return built;
    // An index measures what blocks hold.
    const auto measured = MeasureText(text, form, sizes, options_);
    EXPECT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->text_tokens + *family_->images().Placeholders(sizes),
              built->ids.size());
    EXPECT_EQ(measured->label_tokens, built->label_tokens);
    return built;
  }

  // Ids as text; a run of placeholders as [N], and end of text as (end).
  std::string Shown(absl::Span<const int32_t> ids) const {
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      size_t n = 1;
      if (ids[i] == model_.token_ids().image()) {
        while (i + n < ids.size() && ids[i + n] == ids[i]) ++n;
        absl::StrAppend(&text, "[", n, "]");
      } else if (ids[i] == model_.token_ids().end_of_text()) {
        text += "(end)";
      } else {
        EXPECT_TRUE(tokenizer_->Decode({ids[i]}, &text).ok());
      }
      i += n;
    }
    return text;
  }

  std::string Learnt(const TextSample& sample) const {
    std::vector<int32_t> labels;
    for (const int32_t label : sample.labels) {
      if (label != -100) labels.push_back(label);
    }
    return Shown(labels);
  }

  const v1::Model& model() const { return model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  v1::Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const ModelText> family_;
  TextOptions options_;
};

v1::Model WithCustomTemplate() {
  v1::Model model;
  v1::ChatTemplate& chat = *model.mutable_custom_template();
  chat.mutable_user()->set_prefix("U: ");
  chat.mutable_assistant()->set_prefix(" A: ");
  chat.mutable_assistant()->set_end("!");
  chat.mutable_assistant()->set_supervised(true);
  return model;
}

TEST(FamilyDocumentsTest, ADocumentHasTheMarksOfItsImages) {
  for (const Marked& marked : kMarked) {
    SCOPED_TRACE(marked.family);
    const Texts texts(marked.family, "chatml");
    const std::string image = absl::StrCat(
        marked.before, "[", marked.placeholders, "]", marked.after);
    const auto first = texts.Build("words", TextForm::kDocument);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(texts.Shown(first->ids), absl::StrCat(image, "words(end)"));
    EXPECT_EQ(texts.Learnt(*first), "words(end)");
    const auto placed = texts.Build("a <image>b<image>", TextForm::kDocument,
                                    {kOne[0], kOne[0]});
    ASSERT_TRUE(placed.ok()) << placed.status();
    EXPECT_EQ(texts.Shown(placed->ids),
              absl::StrCat("a ", image, "b", image, "(end)"));
  }
}

TEST(FamilyDocumentsTest, OtherChatTemplatesHaveTheMarks) {
  const char* chat =
      R"({"messages": [{"role": "user", "content": "<image>Where?"},
          {"role": "assistant", "content": "Here"}]})";
  for (const Marked& marked : kMarked) {
    SCOPED_TRACE(marked.family);
    const std::string image = absl::StrCat(
        marked.before, "[", marked.placeholders, "]", marked.after);
    const Texts chatml(marked.family, "chatml");
    const auto one = chatml.Build(chat, TextForm::kConversation);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_THAT(chatml.Shown(one->ids),
                HasSubstr(absl::StrCat("user\n", image, "Where?<|im_end|>")));
    const Texts custom(marked.family, "custom", WithCustomTemplate());
    const auto other = custom.Build(chat, TextForm::kConversation);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(custom.Shown(other->ids),
              absl::StrCat("U: ", image, "Where? A: Here!"));
    EXPECT_EQ(custom.Learnt(*other), "Here!");
  }
}

// Marks among ids are never supervised.
TEST(FamilyDocumentsTest, MarksAmongTokenIdsAreNotLearnt) {
  const Texts texts("glm4v", "chatml");
  const int32_t begin = *texts.tokenizer().SpecialTokenId("<|begin_of_image|>");
  const int32_t end = *texts.tokenizer().SpecialTokenId("<|end_of_image|>");
  std::string json = absl::StrCat("[65, ", begin);
  for (int i = 0; i < 400; ++i) {
    absl::StrAppend(&json, ", ", texts.model().token_ids().image());
  }
  absl::StrAppend(&json, ", ", end, ", 66]");
  const auto packed = texts.Build(json, TextForm::kPackedJson);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->ids.size(), 404u);
  EXPECT_EQ(packed->label_tokens, 1u);  // 66; nothing predicts 65
}

// A family of one's own has the marks that it states, and no others.
TEST(FamilyDocumentsTest, AFamilyOfOnesOwnHasItsMarks) {
  v1::Model model;
  v1::ImageFamily& own = *model.mutable_image_family();
  own.set_rule(v1::ImageFamily::RULE_SMART_RESIZE);
  own.set_patch(14);
  own.set_merge(2);
  own.set_min_pixels(56 * 56);
  own.set_max_pixels(28 * 28 * 400);
  own.mutable_marks()->set_placeholder("<|image|>");
  own.mutable_marks()->set_before("<img>");
  const Texts texts("glm4v", "chatml", model);
  const auto built = texts.Build("words", TextForm::kDocument);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(texts.Shown(built->ids), "<img>[400]words(end)");
}

// Lengths measured without the marks are stale.
TEST(FamilyDocumentsTest, TheKeyOfLengthsHasTheMarks) {
  for (const Marked& marked : kMarked) {
    const Texts texts(marked.family, "chatml");
    const std::string key = TextLengthKey(texts.model(), texts.tokenizer());
    v1::Model without = texts.model();
    without.mutable_image_family()->mutable_marks()->clear_before();
    without.mutable_image_family()->mutable_marks()->clear_after();
    EXPECT_NE(key, TextLengthKey(without, texts.tokenizer()));
  }
}

}  // namespace
}  // namespace ballast
