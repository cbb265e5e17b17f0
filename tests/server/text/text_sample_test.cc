#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "server/text/text_token.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kImage = 1001;
constexpr int32_t kVisionStart = 1002;
constexpr int32_t kVisionEnd = 1003;
constexpr int32_t kImStart = 1004;
constexpr int32_t kImEnd = 1005;
constexpr int32_t kEndOfText = 1006;

// Builds the expected ids and labels in the plainest way: token by token.
struct Expected {
  std::vector<int32_t> ids;
  std::vector<bool> supervised;

  Expected& Text(const std::string& text, bool learnt = false) {
    for (const unsigned char c : text) Id(c, learnt);
    return *this;
  }
  Expected& Id(int32_t id, bool learnt = false) {
    ids.push_back(id);
    supervised.push_back(learnt);
    return *this;
  }
  Expected& Image(int placeholders) {
    Id(kVisionStart);
    for (int i = 0; i < placeholders; ++i) Id(kImage);
    return Id(kVisionEnd);
  }
  std::vector<int32_t> Labels() const {
    std::vector<int32_t> labels(ids.size(), -100);
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      if (supervised[i + 1]) labels[i] = ids[i + 1];
    }
    return labels;
  }
};

absl::StatusOr<TextSample> BuildConversation(absl::string_view json,
                                             absl::Span<const ImageSize> images,
                                             const TextOptions& options) {
  return BuildText(json, TextForm::kConversation, images, options);
}

absl::StatusOr<TextSample> BuildDocument(absl::string_view text,
                                         absl::Span<const ImageSize> images,
                                         const TextOptions& options) {
  return BuildText(text, TextForm::kDocument, images, options);
}

using Sides = std::vector<ImageSize>;

class TextSampleTest : public ::testing::Test {
 protected:
  TextSampleTest() : tokenizer_(*MakeTokenizer("bytes")) {
    model_.set_profile("qwen2_5_vl");
    model_.mutable_token_ids()->set_image(kImage);
    model_.mutable_token_ids()->set_vision_start(kVisionStart);
    model_.mutable_token_ids()->set_vision_end(kVisionEnd);
    model_.mutable_token_ids()->set_im_start(kImStart);
    model_.mutable_token_ids()->set_im_end(kImEnd);
    model_.mutable_token_ids()->set_end_of_text(kEndOfText);
    model_.set_min_pixels(1);
    EXPECT_TRUE(ApplyModelProfile(&model_).ok());
  }

  TextOptions Options(
      uint32_t max_tokens = 4096,
      v1::Batch::OnTooLong on_too_long = v1::Batch::ON_TOO_LONG_ERROR) const {
    texts_.push_back(ModelText::Create(model_, tokenizer_.get()).value());
    return {texts_.back().get(), max_tokens, on_too_long};
  }

  // The sides of an image that is this grid of patches as it is.
  static ImageSize Grid(uint32_t grid_h, uint32_t grid_w) {
    return {.width = grid_w * 14, .height = grid_h * 14};
  }

  static void ExpectEqual(const absl::StatusOr<TextSample>& sample,
                          const Expected& expected) {
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->ids, expected.ids);
    EXPECT_EQ(sample->labels, expected.Labels());
    uint32_t labels = 0;
    for (const int32_t label : expected.Labels()) labels += label != -100;
    EXPECT_EQ(sample->label_tokens, labels);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  v1::Model model_;
  mutable std::vector<std::unique_ptr<const ModelText>> texts_;
};

TEST_F(TextSampleTest, ConversationIsChatml) {
  const auto sample = BuildConversation(
      R"({"conversations": [{"from": "human", "value": "<image>\nWhat?"},
                            {"from": "gpt", "value": "Hi"}]})",
      {Grid(4, 6)}, Options());
  Expected expected;
  expected.Id(kImStart).Text("user\n").Image(6).Text("\nWhat?");
  expected.Id(kImEnd).Text("\n").Id(kImStart).Text("assistant\n");
  expected.Text("Hi", true).Id(kImEnd, true).Text("\n");
  ExpectEqual(sample, expected);
  EXPECT_EQ(sample->label_tokens, 3u);
}

TEST_F(TextSampleTest, ImagesReplaceTheirMarksInEveryTurn) {
  const auto sample = BuildConversation(
      R"({"conversations": [{"from": "system", "value": ""},
          {"from": "user", "value": " a<image><image> b "},
          {"from": "assistant", "value": "x<image>y"},
          {"from": "user", "value": "<image>"},
          {"from": "assistant", "value": "z"}]})",
      {Grid(2, 2), Grid(2, 4), Grid(4, 4), Grid(2, 6)}, Options());
  Expected expected;
  expected.Id(kImStart).Text("system\n").Id(kImEnd).Text("\n");
  expected.Id(kImStart).Text("user\n a").Image(1).Image(2).Text(" b ");
  expected.Id(kImEnd).Text("\n").Id(kImStart).Text("assistant\n");
  // An image in the assistant's text is not supervised.
  expected.Text("x", true).Image(4).Text("y", true).Id(kImEnd, true);
  expected.Text("\n").Id(kImStart).Text("user\n").Image(3).Id(kImEnd);
  expected.Text("\n").Id(kImStart).Text("assistant\n").Text("z", true);
  expected.Id(kImEnd, true).Text("\n");
  ExpectEqual(sample, expected);
}

TEST_F(TextSampleTest, ASystemPromptIsAddedIfThereIsNoSystemTurn) {
  model_.set_system_prompt("Be brief.");
  Expected expected;
  expected.Id(kImStart).Text("system\nBe brief.").Id(kImEnd).Text("\n");
  expected.Id(kImStart).Text("user\na").Id(kImEnd).Text("\n");
  ExpectEqual(
      BuildConversation(R"({"messages": [{"role": "user", "content": "a"}]})",
                        {}, Options()),
      expected);
  Expected own;
  own.Id(kImStart).Text("system\ns").Id(kImEnd).Text("\n");
  ExpectEqual(
      BuildConversation(R"({"messages": [{"role": "system", "content": "s"}]})",
                        {}, Options()),
      own);
}

TEST_F(TextSampleTest, ACustomTemplateChoosesTheSupervisedText) {
  model_.set_chat_template("custom");
  v1::ChatTemplate* custom = model_.mutable_custom_template();
  custom->set_begin("# ");
  custom->set_trim(true);
  custom->mutable_user()->set_prefix("Q: ");
  custom->mutable_user()->set_suffix("\n");
  custom->mutable_user()->set_supervised(true);
  custom->mutable_assistant()->set_prefix("A: ");
  custom->mutable_assistant()->set_end("<|endoftext|>;");
  custom->mutable_assistant()->set_suffix("\n");
  custom->mutable_assistant()->set_supervised(true);
  const auto sample = BuildConversation(
      R"({"conversations": [{"from": "system", "value": " s "},
          {"from": "human", "value": "\tq<image>\n"},
          {"from": "gpt", "value": "\u3000a\u001c"}]})",
      {Grid(2, 2)}, Options());
  Expected expected;
  expected.Text("# s").Text("Q: ").Text("q", true).Image(1).Text("\nA: ");
  expected.Text("a", true).Id(kEndOfText, true).Text(";", true).Text("\n");
  ExpectEqual(sample, expected);
}

TEST_F(TextSampleTest, InvalidUtf8IsAnErrorOrIsReplaced) {
  const std::string document = "ab\xFF";
  const std::string conversation =
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\xC3(\"}]}";
  const absl::Status status = BuildDocument(document, {}, Options()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at byte 2"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.on_invalid_utf8"));
  EXPECT_THAT(
      std::string(
          BuildConversation(conversation, {}, Options()).status().message()),
      HasSubstr("at byte 48"));
  model_.set_on_invalid_utf8(v1::Model::ON_INVALID_UTF8_REPLACE);
  Expected mended;
  mended.Text("ab\xEF\xBF\xBD", true).Id(kEndOfText, true);
  ExpectEqual(BuildDocument(document, {}, Options()), mended);
  Expected said;
  said.Id(kImStart).Text("assistant\n").Text("\xEF\xBF\xBD(", true);
  said.Id(kImEnd, true).Text("\n");
  ExpectEqual(BuildConversation(conversation, {}, Options()), said);
}

TEST_F(TextSampleTest, PackedTokensPassThrough) {
  const std::string json = R"({"tokens": [7, 1002, 1001, 1001, 1003, 8, 9],
                               "labels": [7, -100, -100, -100, -100, -100, 9]})";
  Expected expected;
  expected.Id(7).Image(2).Id(8).Id(9, true);
  const auto sample =
      BuildText(json, TextForm::kPackedJson, Sides{Grid(2, 4)}, Options());
  ExpectEqual(sample, expected);
  const auto measured =
      MeasureText(json, TextForm::kPackedJson, Sides{Grid(2, 4)}, Options());
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->text_tokens, 5u);
  EXPECT_EQ(measured->label_tokens, 1u);
  Expected bytes;
  bytes.Id(1, true).Id(2, true);
  ExpectEqual(BuildText(absl::string_view("\1\0\0\0\2\0\0\0", 8),
                        TextForm::kPackedBytes, {}, Options()),
              bytes);
  // The limit applies to packed tokens as to any text.
  EXPECT_EQ(
      BuildText(json, TextForm::kPackedJson, Sides{Grid(2, 4)}, Options(5))
          .status()
          .code(),
      absl::StatusCode::kOutOfRange);
  Expected cut;
  cut.Id(7).Image(2);
  ExpectEqual(BuildText(json, TextForm::kPackedJson, Sides{Grid(2, 4)},
                        Options(5, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT)),
              cut);
}

// This tokenizer has no special tokens; chat_vectors_test uses one that does.
TEST_F(TextSampleTest, SpecialTokensInsideTextArePlainText) {
  const auto sample = BuildConversation(
      R"({"conversations": [{"from": "human", "value": "<|im_end|>"}]})", {},
      Options());
  Expected expected;
  expected.Id(kImStart).Text("user\n<|im_end|>").Id(kImEnd).Text("\n");
  ExpectEqual(sample, expected);
  EXPECT_EQ(sample->label_tokens, 0u);
}

TEST_F(TextSampleTest, AWholeDocumentIsSupervised) {
  Expected expected;
  expected.Text("ab\n", true).Id(kEndOfText, true);
  const auto sample = BuildDocument("ab\n", {}, Options());
  ExpectEqual(sample, expected);
  EXPECT_THAT(sample->labels, ElementsAre('b', '\n', kEndOfText, -100));
  // One label fewer than tokens: no token precedes the first.
  EXPECT_EQ(sample->label_tokens, 3u);
}

TEST_F(TextSampleTest, DocumentPutsImagesFirstUnlessMarked) {
  Expected first;
  first.Image(1).Image(4).Text("ab", true).Id(kEndOfText, true);
  ExpectEqual(BuildDocument("ab", {Grid(2, 2), Grid(4, 4)}, Options()), first);
  Expected marked;
  marked.Text("a", true).Image(1).Text("b", true).Image(4);
  marked.Id(kEndOfText, true);
  ExpectEqual(
      BuildDocument("a<image>b<image>", {Grid(2, 2), Grid(4, 4)}, Options()),
      marked);
}

TEST_F(TextSampleTest, AnEmptyDocumentIsItsEndToken) {
  Expected expected;
  expected.Id(kEndOfText, true);
  ExpectEqual(BuildDocument("", {}, Options()), expected);
}

TEST_F(TextSampleTest, RefusesAnotherNumberOfMarksThanImages) {
  const char* one = R"({"conversations": [{"from": "human", "value":
      "<image>"}]})";
  const char* none = R"({"conversations": [{"from": "human", "value": "a"}]})";
  for (const auto& status :
       {BuildConversation(one, {}, Options()).status(),
        BuildConversation(one, {Grid(2, 2), Grid(2, 2)}, Options()).status(),
        BuildConversation(none, {Grid(2, 2)}, Options()).status(),
        BuildDocument("<image>", {}, Options()).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("<image>"));
  }
}

TEST_F(TextSampleTest, LimitIsInclusive) {
  EXPECT_TRUE(BuildDocument("abc", {}, Options(4)).ok());
  for (const auto policy :
       {v1::Batch::ON_TOO_LONG_ERROR, v1::Batch::ON_TOO_LONG_SKIP}) {
    const auto sample = BuildDocument("abcd", {}, Options(4, policy));
    EXPECT_EQ(sample.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(sample.status().message()), HasSubstr("5 tokens"));
  }
}

// Under every limit the sample has exactly that many tokens: the whole
// sample's, without the last tokens that belong to no image.
TEST_F(TextSampleTest, TruncationDropsTextFromTheEndAndNeverAnImage) {
  const std::string json =
      R"({"conversations": [{"from": "human", "value": "ab<image>cd"},
          {"from": "gpt", "value": "ef<image>gh"}]})";
  const std::vector<ImageSize> images = {Grid(4, 4), Grid(2, 4)};
  Expected whole;
  whole.Id(kImStart).Text("user\nab").Image(4).Text("cd").Id(kImEnd);
  whole.Text("\n").Id(kImStart).Text("assistant\n").Text("ef", true).Image(2);
  whole.Text("gh", true).Id(kImEnd, true).Text("\n");
  const auto of_image = [](int32_t id) {
    return id == kImage || id == kVisionStart || id == kVisionEnd;
  };
  const uint32_t total = whole.ids.size();
  const uint32_t spans = 4 + 2 + 2 * 2;
  for (uint32_t limit = spans; limit <= total + 1; ++limit) {
    const TextOptions options =
        Options(limit, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT);
    uint32_t text_left = limit - spans;
    Expected expected;
    for (uint32_t i = 0; i < total; ++i) {
      if (of_image(whole.ids[i])) {
        expected.Id(whole.ids[i]);
      } else if (text_left > 0) {
        --text_left;
        expected.Id(whole.ids[i], whole.supervised[i]);
      }
    }
    const auto sample = BuildConversation(json, images, options);
    ExpectEqual(sample, expected);
    const auto measured =
        MeasureText(json, TextForm::kConversation, images, options);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->text_tokens, expected.ids.size() - 6);
    EXPECT_EQ(measured->label_tokens, sample->label_tokens);
    EXPECT_FALSE(measured->too_long);
  }
  EXPECT_EQ(BuildConversation(
                json, images,
                Options(spans - 1, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT))
                .status()
                .code(),
            absl::StatusCode::kOutOfRange);
}

// Each token's number is its place in the whole text, placeholders included.
TEST_F(TextSampleTest, FieldsAreCutWithTheirTokens) {
  const std::string turns =
      R"("messages": [{"role": "user", "content": "ab<image>cd"},
          {"role": "assistant", "content": "ef<image>gh", "part": 7}])";
  const std::vector<ImageSize> images = {Grid(4, 4), Grid(2, 4)};
  FieldSpec place = {
      "place", v1::Source::Field::TYPE_INT32, v1::Source::Field::PER_TOKEN, {}};
  FieldSpec part = {"part", v1::Source::Field::TYPE_INT32,
                    v1::Source::Field::PER_TURN, 5};
  const std::vector<FieldSpec> specs = {part, place};
  const uint32_t user = 1 + 5 + 2 + (4 + 2) + 2 + 2;
  const uint32_t assistant = 1 + 10 + 2 + (2 + 2) + 2 + 2;
  std::string places;
  for (uint32_t i = 0; i < user + assistant; ++i) {
    absl::StrAppend(&places, i == 0 ? "" : ",", i);
  }
  const auto build = [&](absl::string_view given, uint32_t limit) {
    const std::string json = absl::StrCat("{", turns, given, "}");
    return BuildText(json, TextForm::kConversation, images,
                     Options(limit, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT), {},
                     {specs, json});
  };
  const std::string given = absl::StrCat(R"(, "place": [)", places, "]");
  for (const uint32_t limit : {user + assistant, user + 8, user - 3}) {
    const auto sample = build(given, limit);
    ASSERT_TRUE(sample.ok()) << sample.status();
    const size_t tokens = sample->ids.size();
    ASSERT_EQ(tokens, limit);
    ASSERT_EQ(sample->field_rows.size(), 2 * tokens);
    // The images stay, and the first of all other tokens.
    uint32_t text_left = limit - (4 + 2) - (2 + 2);
    size_t i = 0;
    for (uint32_t at = 0; at < user + assistant; ++at) {
      const uint32_t second = user + 1 + 10 + 2;
      const bool is_image =
          (at >= 8 && at < 8 + 6) || (at >= second && at < second + 4);
      if (!is_image && text_left == 0) continue;
      if (!is_image) --text_left;
      ASSERT_LT(i, tokens);
      EXPECT_EQ(sample->field_rows[i], at < user ? 5u : 7u);
      EXPECT_EQ(sample->field_rows[tokens + i++], at);
    }
  }
  EXPECT_THAT(std::string(build(", \"place\": [1]", 99).status().message()),
              HasSubstr("field place: found 1 numbers, and the rendered text "
                        "has 39 tokens"));
  EXPECT_THAT(std::string(build("", 99).status().message()),
              HasSubstr("field place: missing"));
}

TEST_F(TextSampleTest, TurnsOfNoWeightAreNotLearnt) {
  const auto json = [](const char* weight) {
    return absl::StrCat(
        R"({"messages": [{"role": "user", "content": "q"},
            {"role": "assistant", "content": "a", "weight": )",
        weight, R"(}, {"role": "user", "content": "q"},
            {"role": "assistant", "content": "b"}]})");
  };
  Expected expected;
  for (const char* answer : {"a", "b"}) {
    const bool learnt = *answer == 'b';
    expected.Id(kImStart).Text("user\nq").Id(kImEnd).Text("\n");
    expected.Id(kImStart).Text("assistant\n").Text(answer, learnt);
    expected.Id(kImEnd, learnt).Text("\n");
  }
  ExpectEqual(BuildConversation(json("0"), {}, Options()), expected);
  EXPECT_THAT(
      std::string(
          BuildConversation(json("0.5"), {}, Options()).status().message()),
      HasSubstr("turn 2: `weight` is 0.5, which scales loss_mask: name "
                "it in the source's fields"));
  const std::vector<FieldSpec> specs = {{"weight",
                                         v1::Source::Field::TYPE_FLOAT32,
                                         v1::Source::Field::PER_TURN, 1}};
  const std::string half = json("0.5");
  const auto sample = BuildText(half, TextForm::kConversation, {}, Options(),
                                {}, {specs, half});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->label_tokens, 4u);
}

TEST_F(TextSampleTest, ImagesBeyondTheLimitTakeNoMemory) {
  // 2^28 placeholders would be 2 GiB of ids and labels.
  model_.set_max_pixels(uint64_t{1} << 40);
  const std::vector<ImageSize> images(16, Grid(1 << 13, 1 << 13));
  const auto sample = BuildDocument(
      "a", images, Options(4096, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT));
  EXPECT_EQ(sample.status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(TextSampleTest, MeasureAgreesWithBuild) {
  const auto measured =
      MeasureText("ab", TextForm::kDocument, Sides{Grid(4, 4)}, Options());
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->text_tokens, 2u + 2u + 1u);
  EXPECT_EQ(measured->label_tokens, 3u);
  EXPECT_FALSE(measured->too_long);
}

TEST_F(TextSampleTest, MeasureOfATooLongTextHasTheWholeCounts) {
  const auto measured =
      MeasureText("abcd", TextForm::kDocument, {}, Options(4));
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_TRUE(measured->too_long);
  EXPECT_EQ(measured->text_tokens, 5u);
  EXPECT_EQ(
      MeasureText("{}", TextForm::kConversation, {}, Options()).status().code(),
      absl::StatusCode::kInvalidArgument);
}

// An image of 2 placeholders, a video of two runs of 3, and one of one run of
// 1: runs are numbered after the images, texts before them are never
// supervised.
TEST_F(TextSampleTest, WritesVideosAtTheirMarks) {
  model_.mutable_token_ids()->set_video(1007);
  const std::vector<StreamText> videos = {{2, 3, {"<0.5>", "<1.5>"}},
                                          {1, 1, {}}};
  const auto sample = BuildText("a<video>b<image>c<video>", TextForm::kDocument,
                                Sides{Grid(2, 4)}, Options(), videos);
  ASSERT_TRUE(sample.ok()) << sample.status();
  Expected expected;
  const auto run = [&](int tokens) {
    expected.Id(kVisionStart);
    for (int i = 0; i < tokens; ++i) expected.Id(1007);
    expected.Id(kVisionEnd);
  };
  expected.Text("a", true).Text("<0.5>");
  run(3);
  expected.Text("<1.5>");
  run(3);
  expected.Text("b", true).Image(2).Text("c", true);
  run(1);
  expected.Id(kEndOfText, true);
  EXPECT_EQ(sample->ids, expected.ids);
  EXPECT_EQ(sample->labels, expected.Labels());
  const auto measured =
      MeasureText("a<video>b<image>c<video>", TextForm::kDocument,
                  Sides{Grid(2, 4)}, Options(), videos);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(measured->text_tokens, expected.ids.size() - 2 - 3 - 3 - 1);
  EXPECT_TRUE(measured->limited);
}

// LLaVA's data mark a video with the mark of an image.
TEST_F(TextSampleTest, AnImageMarkIsAVideosWhereThereIsNoImage) {
  model_.mutable_token_ids()->set_video(1007);
  const std::vector<StreamText> videos = {{1, 2, {}}};
  const auto marked =
      BuildText("<image>x", TextForm::kDocument, {}, Options(), videos);
  ASSERT_TRUE(marked.ok()) << marked.status();
  EXPECT_THAT(marked->ids, ElementsAre(kVisionStart, 1007, 1007, kVisionEnd,
                                       'x', kEndOfText));
  EXPECT_EQ(BuildText("x", TextForm::kDocument, {}, Options(), videos)->ids,
            marked->ids);
  EXPECT_THAT(
      BuildText("<video><video>", TextForm::kDocument, {}, Options(), videos)
          .status()
          .message(),
      HasSubstr("2 <video> marks, the sample has 0 images, 1 videos"));
  EXPECT_THAT(BuildText("<video>", TextForm::kDocument, {}, Options())
                  .status()
                  .message(),
              HasSubstr("1 <video> marks, the sample has 0 images, 0 videos"));
}

// Texts of samples with a SentencePiece model.

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
  const ImageSize square = {56, 56};  // four tokens
  const auto build = [&](const char* text) {
    const auto of_model = ModelText::Create(model, tokenizer->get()).value();
    return BuildText(text, TextForm::kConversation,
                     std::vector<ImageSize>{square}, {of_model.get(), 1000});
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
