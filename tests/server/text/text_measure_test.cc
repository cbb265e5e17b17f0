#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"

namespace ballast {
namespace {

v1::Config MakeConfig() {
  v1::Config config;
  config.mutable_model()->set_profile("qwen2_5_vl");
  EXPECT_TRUE(ApplyModelProfile(config.mutable_model()).ok());
  config.mutable_batch()->set_max_tokens(100);
  return config;
}

TEST(TextKeysTest, CoverTheInputsOfLengths) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  const v1::Config config = MakeConfig();
  const std::string length_key = TextLengthKey(config.model(), *tokenizer);
  const std::string limit_key = TextLimitKey(config);
  // The effect of each change: 'l' on the lengths, 'b' on the bounds, '-' on
  // neither.
  const std::pair<char, std::function<void(v1::Config*)>> changes[] = {
      {'b', [](v1::Config* c) { c->mutable_batch()->set_max_tokens(101); }},
      {'b',
       [](v1::Config* c) {
         c->mutable_batch()->set_on_too_long(v1::Batch::ON_TOO_LONG_SKIP);
       }},
      {'b', [](v1::Config* c) { c->mutable_model()->set_min_pixels(5); }},
      {'b', [](v1::Config* c) { c->mutable_model()->set_max_pixels(99999); }},
      {'b', [](v1::Config* c) { c->mutable_model()->set_patch(16); }},
      {'b', [](v1::Config* c) { c->mutable_model()->set_merge(4); }},
      // Those of videos are VideoPlanKey's.
      {'-', [](v1::Config* c) { c->mutable_model()->set_profile("qwen2_vl"); }},
      {'-',
       [](v1::Config* c) {
         c->mutable_model()->mutable_video()->set_max_frames(8);
       }},
      {'l',
       [](v1::Config* c) { c->mutable_model()->set_chat_template("llama3"); }},
      {'l',
       [](v1::Config* c) {
         c->mutable_model()->mutable_custom_template()->mutable_user()->set_end(
             "x");
       }},
      {'l',
       [](v1::Config* c) { c->mutable_model()->set_system_prompt("x\ny"); }},
      {'l',
       [](v1::Config* c) {
         c->mutable_model()->set_on_invalid_utf8(
             v1::Model::ON_INVALID_UTF8_REPLACE);
       }},
      {'l',
       [](v1::Config* c) {
         c->mutable_model()->mutable_token_ids()->set_im_end(5);
       }},
      // Neither how a job is run nor how images are resized changes a length.
      {'-',
       [](v1::Config* c) {
         c->mutable_model()->set_resample(v1::Model::RESAMPLE_FAST);
         c->mutable_batch()->set_global(64);
         c->mutable_order()->set_seed(5);
       }},
  };
  for (const auto& [what, change] : changes) {
    v1::Config changed = config;
    change(&changed);
    EXPECT_EQ(TextLengthKey(changed.model(), *tokenizer) != length_key,
              what == 'l')
        << changed.DebugString();
    EXPECT_EQ(TextLimitKey(changed) != limit_key, what == 'b')
        << changed.DebugString();
  }
}

// Indexes contain the key: with another text every source is indexed again.
TEST(TextKeysTest, TextIsThatOfOlderReleases) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  EXPECT_EQ(TextLengthKey(MakeConfig().model(), *tokenizer),
            R"(text_version=3
tokenizer=bytes-1
chat_template=
image=151655
video=151656
vision_start=151652
vision_end=151653
im_start=151644
im_end=151645
end_of_text=151643
custom_template=|||||||||||||
system_prompt=
on_invalid_utf8=0
)");
  v1::Model tiles;
  tiles.set_profile("internvl3+transformers");
  ASSERT_TRUE(ApplyModelProfile(&tiles).ok());
  EXPECT_EQ(TextLengthKey(tiles, *tokenizer),
            R"(text_version=3
tokenizer=bytes-1
chat_template=
image=-1
video=-1
vision_start=-1
vision_end=-1
im_start=-1
im_end=-1
end_of_text=-1
custom_template=|||||||||||||
system_prompt=
on_invalid_utf8=0
image_family:
  name: "internvl3"
  rule: tile_grid
  patch: 14
  merge: 2
  tile: 448
  max_tiles: 12
  tokens_an_image: 2
  marks:
    placeholder: "<IMG_CONTEXT>"
    before: "<img>"
    after: "</img>"
)");
}

TEST(TextKeysTest, CoverTheMarksOfAClip) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  std::set<std::string> keys;
  for (const char* profile : {"qwen2_audio", "qwen3_omni_moe", "voxtral"}) {
    v1::Model model = MakeConfig().model();
    model.set_profile(profile);
    const std::string without = TextLengthKey(model, *tokenizer);
    model.mutable_token_ids()->set_audio(5);
    keys.insert(TextLengthKey(model, *tokenizer));
    EXPECT_FALSE(keys.contains(without));
  }
  EXPECT_EQ(keys.size(), 3u);
}

// 20 bytes, and end-of-text.
using Sides = std::vector<ImageSize>;

constexpr char kText[] = "twenty bytes of text";

TEST(MeasureTextTest, MarksLengthsThatOtherLimitsMayChange) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  const v1::Config config = MakeConfig();
  const auto text = ModelText::Create(config.model(), tokenizer.get());
  ASSERT_TRUE(text.ok()) << text.status();
  TextOptions options = {text->get(), 100,
                         v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT};
  const ImageSize grid = {84, 56};  // 2*3 tokens
  MeasuredText measured =
      *MeasureText(kText, TextForm::kDocument, Sides{grid}, options);
  EXPECT_EQ(measured.text_tokens, 23);
  EXPECT_FALSE(measured.limited);
  options.max_tokens = 29;
  EXPECT_TRUE(TextFits(measured.text_tokens, Sides{grid}, options));
  options.max_tokens = 28;
  EXPECT_FALSE(TextFits(measured.text_tokens, Sides{grid}, options));
  measured = *MeasureText(kText, TextForm::kDocument, Sides{grid}, options);
  EXPECT_EQ(measured.text_tokens, 22);
  EXPECT_TRUE(measured.limited);  // cut
  // Given ids must contain the tokens of their images.
  measured = *MeasureText("[1, 2]", TextForm::kPackedJson, {}, options);
  EXPECT_FALSE(measured.limited);
  const v1::TokenIds& ids = config.model().token_ids();
  std::string packed = absl::StrCat("[", ids.vision_start());
  for (int i = 0; i < 6; ++i) absl::StrAppend(&packed, ",", ids.image());
  absl::StrAppend(&packed, ",", ids.vision_end(), "]");
  const auto with_image =
      MeasureText(packed, TextForm::kPackedJson, Sides{grid}, options);
  ASSERT_TRUE(with_image.ok()) << with_image.status();
  EXPECT_TRUE(with_image->limited);
  // So must given numbers of tokens.
  FieldSpec numbers;
  numbers.name = "lp";
  numbers.per = v1::Source::Field::PER_TOKEN;
  numbers.missing = 0;
  const TextFields fields = {absl::MakeConstSpan(&numbers, 1), "{}"};
  options.max_tokens = 100;
  for (const Sides& sides : {Sides{}, Sides{grid}}) {
    const auto with_numbers =
        MeasureText(kText, TextForm::kDocument, sides, options, {}, fields);
    ASSERT_TRUE(with_numbers.ok()) << with_numbers.status();
    EXPECT_EQ(with_numbers->limited, !sides.empty());
  }
}

TEST(TextKeysTest, CoverTheSystemTurnOfATemplate) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  v1::Model model = MakeConfig().model();
  model.set_chat_template("llava_video");
  EXPECT_TRUE(absl::StrContains(TextLengthKey(model, *tokenizer),
                                "\nsystem_prompt=You are a helpful"));
}

TEST(MeasureTextTest, SaysWhyNothingIsLearnt) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  v1::Config config = MakeConfig();
  v1::Model& model = *config.mutable_model();
  model.set_chat_template("custom");
  model.mutable_custom_template()->mutable_assistant()->set_supervised(true);
  const auto text = ModelText::Create(model, tokenizer.get());
  ASSERT_TRUE(text.ok()) << text.status();
  TextOptions options = {text->get(), 12, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT};
  const auto why = [&](const std::string& turns) {
    const auto measured =
        MeasureText(absl::StrCat(R"({"messages": [)", turns, "]}"),
                    TextForm::kConversation, {}, options);
    EXPECT_TRUE(measured.ok()) << measured.status();
    if (measured->label_tokens == 0) EXPECT_NE(measured->unlearnt, "");
    return measured->unlearnt;
  };
  const std::string question = R"({"role": "user", "content": "Who?"})";
  EXPECT_EQ(
      why(absl::StrCat(question, R"(,{"role": "assistant", "content": "I"})")),
      "");
  EXPECT_EQ(why(question), "no turn of the assistant");
  for (const char* said : {"", " "}) {
    EXPECT_EQ(
        why(absl::StrCat(question, R"(,{"role": "assistant", "content": ")",
                         said, R"("})")),
        "all answers are empty, so that at most their ends are learnt");
  }
  EXPECT_EQ(
      why(absl::StrCat(
          question, R"(,{"role": "assistant", "content": "I", "weight": 0})")),
      "all answers have weight 0");
  EXPECT_EQ(why(R"({"role": "user", "content": "Who is it this time?"},
                   {"role": "assistant", "content": "I"})"),
            "batch.max_tokens cuts off all answers");
  EXPECT_EQ(MeasureText("[5]", TextForm::kPackedJson, {}, options)->unlearnt,
            "no token has a label");
}

// Each of a pair's texts is what it is alone, and both have one bound.
TEST(MeasureTextTest, APairIsItsTwoTexts) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  v1::Config config = MakeConfig();
  config.mutable_model()->set_chat_template("chatml");
  const auto text = ModelText::Create(config.model(), tokenizer.get());
  ASSERT_TRUE(text.ok()) << text.status();
  const ImageSize grid = {84, 56};  // 2*3 tokens
  const auto chat = [](const char* answer) {
    return absl::StrCat(
        R"({"messages": [{"role": "user", "content": "<image>q"},)"
        R"( {"role": "assistant", "content": ")",
        answer, R"("}], "margin": 0.5})");
  };
  const std::string yes = chat("yes, and more"), no = chat("no");
  for (const auto policy :
       {v1::Batch::ON_TOO_LONG_ERROR, v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT}) {
    TextOptions options = {text->get(), 1000, policy};
    FieldSpec margin;
    margin.name = "margin";
    const TextFields fields = {{&margin, 1}, ""};
    const auto pair = BuildPair(yes, no, Sides{grid}, options, fields);
    ASSERT_TRUE(pair.ok()) << pair.status();
    size_t tokens = 0;
    for (int i = 0; i < 2; ++i) {
      const std::string& alone = i == 0 ? yes : no;
      const auto wanted = BuildText(alone, TextForm::kConversation, Sides{grid},
                                    options, {}, {{&margin, 1}, alone});
      ASSERT_TRUE(wanted.ok()) << wanted.status();
      EXPECT_EQ((*pair)[i].ids, wanted->ids);
      EXPECT_EQ((*pair)[i].labels, wanted->labels);
      EXPECT_EQ((*pair)[i].field_values, wanted->field_values);
      tokens += wanted->ids.size();
    }
    const auto measured = MeasurePair(yes, no, Sides{grid}, options, fields);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->text_tokens, tokens - 2 * 6);
    EXPECT_EQ(measured->first_text_tokens, (*pair)[0].ids.size() - 6);
    EXPECT_EQ(measured->label_tokens,
              (*pair)[0].label_tokens + (*pair)[1].label_tokens);
    EXPECT_FALSE(measured->too_long);
    options.max_tokens = static_cast<uint32_t>(tokens);
    EXPECT_TRUE(TextFits(measured->text_tokens, Sides{grid}, options, true));
    EXPECT_TRUE(BuildPair(yes, no, Sides{grid}, options, fields).ok());
    options.max_tokens = static_cast<uint32_t>(tokens) - 1;
    EXPECT_FALSE(TextFits(measured->text_tokens, Sides{grid}, options, true));
    EXPECT_TRUE(MeasurePair(yes, no, Sides{grid}, options, fields)->too_long);
    EXPECT_EQ(BuildPair(yes, no, Sides{grid}, options, fields).status().code(),
              absl::StatusCode::kOutOfRange);
  }
  // Nobody knows which of the two a list is for.
  FieldSpec parts;
  parts.name = "part";
  parts.per = v1::Source::Field::PER_TURN;
  const auto listed = BuildPair(yes, no, Sides{grid}, {text->get(), 1000},
                                {{&parts, 1}, R"({"part": [1, 2]})"});
  EXPECT_TRUE(absl::StrContains(listed.status().message(),
                                "field part: a list for a preference pair"))
      << listed.status();
}

}  // namespace
}  // namespace ballast
