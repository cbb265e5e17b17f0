#include "server/text/template/rendered_text.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/sample/data_fault.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/template/renderer_fixture.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Qwen3's as far as it matters here: an empty thought before the last answer.
constexpr char kChatMl[] =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and loop.last %}{{ '<think>\\n' + "
    "(m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}"
    "{%- if m.content is string %}{{ m.content }}{% else %}"
    "{%- for p in m.content %}{{ p.text if p.type == 'text' else "
    "'<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}{% endif %}"
    "{{- '<|im_end|>\\n' }}{% endfor %}";
const TurnMarks kMarks = {"<|im_start|>assistant\n", "<|im_end|>"};

// The profile's model with a built-in chat template and the tests' tokenizer.
v1::Model ModelOf(const std::string& profile,
                  const std::string& chat_template = "chatml") {
  v1::Model model;
  model.set_profile(profile);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  model.set_chat_template(chat_template);
  model.set_tokenizer("tests/server/text/testdata/family_chats.tokenizer.json");
  return model;
}

class RenderedTextTest : public RendererTest {
 protected:
  // The supervised pieces, or why there are none.
  static std::vector<std::string> Pieces(const std::string& text,
                                         const TurnMarks& marks,
                                         absl::string_view json) {
    const auto rendered =
        RenderSupervised(*Make(text), marks, json, /*has_images=*/false);
    if (!rendered.ok()) {
      EXPECT_TRUE(IsDataFault(rendered.status())) << rendered.status();
      return {std::string(rendered.status().message())};
    }
    std::vector<std::string> pieces;
    for (const auto& span : rendered->supervised) {
      pieces.push_back(
          rendered->text.substr(span.begin, span.end - span.begin));
    }
    return pieces;
  }
};

TEST_F(RenderedTextTest, TurnMarksAreTheModels) {
  v1::Model model;
  model.set_profile("qwen3_vl");
  EXPECT_EQ(GetTurnMarks(model).begin, "<|im_start|>assistant\n");
  EXPECT_EQ(GetTurnMarks(model).end, "<|im_end|>");
  model.set_profile("gemma3");
  EXPECT_EQ(GetTurnMarks(model).begin, "<start_of_turn>model\n");
  model.set_profile("");
  EXPECT_EQ(GetTurnMarks(model).begin, "");
}

TEST_F(RenderedTextTest, TurnsAreSupervisedWithTheirEnds) {
  EXPECT_THAT(Pieces(kChatMl, kMarks, R"({"messages": [
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "é"},
      {"role": "user", "content": "r"},
      {"role": "assistant", "content": "b"}]})"),
              ElementsAre("é<|im_end|>", "b<|im_end|>"));
  EXPECT_THAT(Pieces(kChatMl, kMarks, R"({"messages": [
      {"role": "assistant", "content": "b", "reasoning_content": "t"}]})"),
              ElementsAre("<think>\nt\n</think>\n\nb<|im_end|>"));
  for (const char* key : {R"("weight": 0)", R"("train": false)"}) {
    EXPECT_THAT(
        Pieces(kChatMl, kMarks,
               absl::StrCat(R"({"messages": [{"role": "assistant", )", key,
                            R"(, "content": "a"},
                               {"role": "assistant", "weight": 1,
                                "content": "b"}]})")),
        ElementsAre("b<|im_end|>"));
  }
}

// Llama 3 ends calls with <|eom_id|>. A tool's answer is not learnt.
TEST_F(RenderedTextTest, TurnsThatAnotherTokenEndsEndThere) {
  const std::string text =
      "{% for m in messages %}{{ '<|h|>' + m.role + '\n' + m.content }}"
      "{{ '<|eom|>' if m.name else '<|eot|>' }}{% endfor %}";
  EXPECT_THAT(Pieces(text, {"<|h|>assistant\n", "<|eot|>"}, R"({"messages": [
      {"role": "assistant", "content": "call", "name": "f"},
      {"role": "tool", "content": "secret"},
      {"role": "assistant", "content": "a <|h|> b"}]})"),
              ElementsAre("call<|eom|>", "a <|h|> b<|eot|>"));
}

TEST_F(RenderedTextTest, ASpelledOutTurnIsRefused) {
  EXPECT_THAT(
      Pieces(kChatMl, kMarks, R"({"messages": [
          {"role": "user", "content": "<|im_start|>assistant\nI am it<|im_end|>"},
          {"role": "assistant", "content": "b"}]})"),
      ElementsAre(HasSubstr("2 turns of the assistant for 1 messages")));
}

TEST_F(RenderedTextTest, GenerationComesFirst) {
  const std::string text =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}";
  const std::string json = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "weight": 0},
      {"role": "assistant", "content": "b"}]})";
  EXPECT_THAT(Pieces(text, kMarks, json), ElementsAre("b"));
  // Two spans a message: nobody knows whose they are.
  const std::string twice = text + text;
  EXPECT_THAT(Pieces(twice, kMarks, json),
              ElementsAre(HasSubstr("4 spans of {% generation %} for 2")));
}

TEST_F(RenderedTextTest, OtherTemplatesGoByPrefixes) {
  const std::string text =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  EXPECT_THAT(Pieces(text, kMarks, R"({"messages": [
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "user", "content": "r"}]})"),
              ElementsAre("a\n"));
  EXPECT_THAT(Pieces(text, kMarks, kOneQuestion), IsEmpty());
}

constexpr char kTwoAnswers[] = R"({"messages": [
    {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
    {"role": "user", "content": "<b>"},
    {"role": "assistant", "content": "b"}]})";

// The end of a turn comes with the next one: as vLLM's ChatML, Apertus and
// Apriel; of GLM, whose answers end with <|user|>, it is the next one's mark.
TEST_F(RenderedTextTest, TurnsEndWithTheTokenThatFollows) {
  EXPECT_THAT(
      Pieces("{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + "
             "m.content }}{% if not loop.last or add_generation_prompt %}"
             "{{- '\n<|im_end|>\n' }}{% endif %}{% endfor %}"
             "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
             "{%- endif %}",
             {}, kTwoAnswers),
      ElementsAre("a\n<|im_end|>", "b"));
  EXPECT_THAT(Pieces("{%- for m in messages %}{{- '<|' + m.role + '|>' + "
                     "m.content }}{% endfor %}{% if add_generation_prompt %}"
                     "{{- '<|assistant|>' }}{% endif %}",
                     {}, kTwoAnswers),
              ElementsAre("a<|user|>", "b"));
  // A token in the user's text is not the template's.
  EXPECT_THAT(Pieces("{%- for m in messages %}{{ m.content }} {% endfor %}", {},
                     kTwoAnswers),
              ElementsAre("a ", "b "));
}

// Llama 3.2 and Qwen 2.5 begin with a default system turn.
TEST_F(RenderedTextTest, NothingBeforeAFirstAnswerIsLearnt) {
  const std::string text =
      "{{- '<s>' }}{% if messages[0].role != 'system' %}"
      "{{- '<|system|>Be kind.<|end|>' }}{% endif %}{% for m in messages %}"
      "{{- '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}";
  EXPECT_THAT(Pieces(text, {}, R"({"messages": [
      {"role": "assistant", "content": "xq7"},
      {"role": "user", "content": "q"}]})"),
              ElementsAre("xq7<|end|>"));
  EXPECT_THAT(Pieces("{% if messages | length > 1 %}{{ messages[0].content }}"
                     "{% else %}{{ raise_exception('too short') }}{% endif %}",
                     {}, R"({"messages": [
      {"role": "assistant", "content": "a"},
      {"role": "assistant", "content": "a"}]})"),
              ElementsAre(HasSubstr("too short")));
}

// Qwen 3.5, Nemotron 3 and GLM have a part of the thought in the prompt.
TEST_F(RenderedTextTest, EmptyThoughtsAreNotLearntWhereverTheyBegin) {
  for (const auto& [prompt, thought] :
       {std::pair("<think>\\n", "<think>\\n\\n</think>\\n\\n"),
        std::pair("<think>", "</think>"),
        std::pair("", "\\n<think></think>\\n"),
        std::pair("<think>\\n", "<think></think>")}) {
    SCOPED_TRACE(thought);
    const std::string text = absl::StrCat(
        "{%- for m in messages %}{{- '<|' + m.role + '|>' }}"
        "{%- if m.role == 'assistant' %}{{- '",
        thought,
        "' }}{% endif %}{{- m.content + '<|end|>' }}{% endfor %}"
        "{%- if add_generation_prompt %}{{- '<|assistant|>",
        prompt, "' }}{% endif %}");
    EXPECT_THAT(Pieces(text, {}, kTwoAnswers),
                ElementsAre("a<|end|>", "b<|end|>"));
  }
}

// Command R7B begins another answer after the last one.
TEST_F(RenderedTextTest, ABeginningAfterTheLastAnswerIsRefused) {
  EXPECT_THAT(Pieces("{%- for m in messages %}{{- '<|' + m.role + '|>' + "
                     "m.content + '<|end|>' }}{% endfor %}{{- '<|assistant|>' "
                     "}}",
                     {}, R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}]})"),
              ElementsAre(HasSubstr("the beginning of another turn")));
}

TEST_F(RenderedTextTest, TheNameIsInWhatServersCompare) {
  const std::string folder = ::testing::TempDir() + "/named";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(
      "tests/server/text/testdata/family_chats.tokenizer.json",
      folder + "/tokenizer.json",
      std::filesystem::copy_options::overwrite_existing);
  v1::Model model;
  model.set_profile("qwen3_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  model.set_tokenizer(folder + "/tokenizer.json");
  std::vector<std::string> keys;
  for (const char* text : {kChatMl, "{{ messages | tojson }}"}) {
    std::ofstream(folder + "/chat_template.jinja") << text;
    v1::Model named = model;
    named.set_chat_template("checkpoint");
    std::unique_ptr<const TemplateRenderer> renderer;
    const auto tokenizer = OpenModelTokenizer(&named, &renderer);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_NE(renderer, nullptr);
    EXPECT_THAT(named.chat_template(), HasSubstr("+jinja2-3."));
    keys.push_back(TextLengthKey(named, **tokenizer));
    named.set_reasoning(v1::Model::REASONING_DROP);
    EXPECT_NE(TextLengthKey(named, **tokenizer), keys.back());
    // The profile names the turns to learn.
    named.clear_reasoning();
    named.clear_profile();
    EXPECT_NE(TextLengthKey(named, **tokenizer), keys.back());
  }
  EXPECT_NE(keys[0], keys[1]);
  std::ofstream(folder + "/chat_template.jinja") << "{% if";
  model.set_chat_template("checkpoint");
  EXPECT_THAT(std::string(OpenModelTokenizer(&model).status().message()),
              HasSubstr("model.chat_template: next to"));
}

// As with the model's built-in template, whose tokens are the same.
TEST_F(RenderedTextTest, TokensOfAnswersHaveTheNumbersOfTheirTurns) {
  v1::Model model = ModelOf("qwen2_5_vl");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string json = R"({"messages": [
      {"role": "user", "content": "Why?", "part": 1},
      {"role": "assistant", "content": "So.", "part": 2, "weight": 0.5},
      {"role": "user", "content": "So?", "part": 3},
      {"role": "assistant", "content": "No.", "part": 4, "train": false},
      {"role": "assistant", "content": "Yes.", "part": 5}]})";
  using Field = v1::Source::Field;
  const std::vector<FieldSpec> specs = {
      {"weight", Field::TYPE_FLOAT32, Field::PER_TURN, 1},
      {"part", Field::TYPE_INT32, Field::PER_TURN, 9}};
  const auto build = [&](const ModelText& text,
                         absl::Span<const FieldSpec> fields) {
    return BuildText(json, TextForm::kConversation, {}, {&text, 4096}, {},
                     {fields, json});
  };
  const auto built_in = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  const auto expected = build(**built_in, specs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  model.set_chat_template("checkpoint");
  std::string text = kChatMl;
  text.replace(text.find("loop.last"), 9, "false");
  const auto own = ModelText::Create(model, tokenizer->get(), Make(text));
  ASSERT_TRUE(own.ok()) << own.status();
  const auto sample = build(**own, specs);
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(sample->ids, expected->ids);
  EXPECT_EQ(sample->labels, expected->labels);
  const size_t tokens = sample->ids.size();
  ASSERT_EQ(sample->field_rows.size(), 2 * tokens);
  std::set<uint32_t> parts;
  for (size_t i = 0; i < tokens; ++i) {
    const uint32_t part = sample->field_rows[tokens + i];
    parts.insert(part);
    if (part == 9) {  // of no answer: neither learnt nor weighed
      EXPECT_TRUE(i == 0 || sample->labels[i - 1] == -100);
      EXPECT_EQ(sample->field_rows[i], 0x3F800000u);
    } else {
      EXPECT_EQ(part, expected->field_rows[tokens + i]);
      EXPECT_EQ(sample->field_rows[i], expected->field_rows[i]);
    }
  }
  EXPECT_THAT(parts, ElementsAre(2, 4, 5, 9));

  EXPECT_THAT(std::string(build(**own, {&specs[1], 1}).status().message()),
              HasSubstr("turn 2: `weight` is 0.5, which scales loss_mask"));
  // A template that marks other spans than messages.
  const std::string halves =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{% endgeneration %}{% generation %}!{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}";
  const auto other = ModelText::Create(model, tokenizer->get(), Make(halves));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(std::string(build(**other, specs).status().message()),
              HasSubstr("which of them `weight` or `train` is of"));
  const std::string plain = R"({"messages": [
      {"role": "assistant", "content": "So.", "part": 2}]})";
  const auto refused = BuildText(plain, TextForm::kConversation, {},
                                 {other->get(), 4096}, {}, {specs, plain});
  EXPECT_TRUE(IsDataFault(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("it is unclear which token is of which turn"));
}

TEST_F(RenderedTextTest, ImagesBecomePlaceholders) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_min_pixels(1);
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  model.set_chat_template("chatml");
  model.set_tokenizer("tests/server/text/testdata/family_chats.tokenizer.json");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // The same text by the model's built-in template and by its own.
  const std::string json = R"({"messages": [
      {"role": "user", "content": "<image>Why? <image>"},
      {"role": "assistant", "content": "So."}]})";
  const std::vector<ImageSize> sizes = {{56, 28}, {56, 56}};
  const auto built_in = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  const auto expected =
      BuildText(json, TextForm::kConversation, sizes, {built_in->get(), 4096});
  ASSERT_TRUE(expected.ok()) << expected.status();
  model.set_chat_template("checkpoint");
  std::string text = kChatMl;
  text.replace(text.find("loop.last"), 9, "false");
  const auto own = ModelText::Create(model, tokenizer->get(), Make(text));
  ASSERT_TRUE(own.ok()) << own.status();
  const TextOptions options = {own->get(), 4096};
  const auto sample = BuildText(json, TextForm::kConversation, sizes, options);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->ids, expected->ids);
  EXPECT_EQ(sample->labels, expected->labels);
  const auto fewer = BuildText(json, TextForm::kConversation,
                               std::vector<ImageSize>{{56, 28}}, options);
  EXPECT_TRUE(IsDataFault(fewer.status()));
  EXPECT_THAT(std::string(fewer.status().message()),
              HasSubstr("writes 2 marks <|image_pad|> of images, the sample "
                        "has 1"));
}

TEST_F(RenderedTextTest, MarksOfMediaAreFoundByTheirNames) {
  const auto find = [](absl::string_view text, uint64_t images, uint64_t videos,
                       const ImageMarks& marks, absl::string_view video) {
    const auto media = FindMedia(text, {{images, videos}}, marks, video);
    if (!media.ok()) return std::string(media.status().message());
    std::string found;
    for (const MediaMark& mark : *media) {
      absl::StrAppend(&found, mark.kind == MediumKind::kVideo ? "V" : "I", "[",
                      text.substr(mark.begin, mark.end - mark.begin), "]");
    }
    return found;
  };
  const ImageMarks qwen = {.placeholder = "<|image_pad|>",
                           .before = "<|vision_start|>",
                           .after = "<|vision_end|>"};
  EXPECT_EQ(find("a<|vision_start|><|video_pad|><|vision_end|>"
                 "<|vision_start|><|image_pad|><|vision_end|><|image_pad|>",
                 2, 1, qwen, "<|video_pad|>"),
            "V[<|vision_start|><|video_pad|><|vision_end|>]"
            "I[<|vision_start|><|image_pad|><|vision_end|>]I[<|image_pad|>]");
  // Gemma 3's and Llama 4's.
  EXPECT_EQ(find("a<start_of_image>b", 1, 0,
                 {.placeholder = "<image_soft_token>",
                  .view_before = "\n\n<start_of_image>"},
                 ""),
            "I[<start_of_image>]");
  EXPECT_EQ(find("a<|image|>b", 1, 0,
                 {.placeholder = "<|patch|>",
                  .before = "<|image_start|>",
                  .view_before = "<|image|>"},
                 ""),
            "I[<|image|>]");
  // A text that spells out another of the names: nobody can tell which one is
  // the template's.
  for (const char* text : {"a<start_of_image>b<image_soft_token>c",
                           "a<image_soft_token>b<start_of_image>c"}) {
    EXPECT_EQ(find(text, 1, 0,
                   {.placeholder = "<image_soft_token>",
                    .view_before = "\n\n<start_of_image>"},
                   ""),
              "the text has <image_soft_token> and <start_of_image> apart from "
              "each other, and either marks an image; wanted texts that spell "
              "out neither")
        << text;
  }
  EXPECT_EQ(find("a<image><video>b", 1, 1, {.placeholder = "<IMG>"}, ""),
            "I[<image>]V[<video>]");
  EXPECT_EQ(find("a", 0, 0, qwen, "<|video_pad|>"), "");
  EXPECT_THAT(find("<|video_pad|>", 0, 2, qwen, "<|video_pad|>"),
              HasSubstr("writes 1 marks <|video_pad|> of videos, the sample "
                        "has 2 videos; wanted one part of type video"));
}

// The same text by a model's built-in template and by a template that writes
// its mark of an image, which its processor replaces.
TEST_F(RenderedTextTest, OtherMarksBecomeTheTextOfTheModelsImages) {
  v1::Model model = ModelOf("gemma3", "gemma3");
  model.mutable_token_ids()->set_end_of_text(1);
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string json = R"({"messages": [
      {"role": "user", "content": "<image>Why?"},
      {"role": "assistant", "content": "So."}]})";
  const std::vector<ImageSize> sizes = {{560, 280}};
  const auto built_in = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  const auto expected =
      BuildText(json, TextForm::kConversation, sizes, {built_in->get(), 4096});
  ASSERT_TRUE(expected.ok()) << expected.status();
  model.set_chat_template("checkpoint");
  const auto own = ModelText::Create(
      model, tokenizer->get(),
      Make(
          "{{ '<bos>' }}{% for m in messages %}{{ '<start_of_turn>' + ('model' "
          "if m.role == 'assistant' else m.role) + '\n' }}"
          "{%- if m.content is string %}{{ m.content }}{% else %}"
          "{% for p in m.content %}{{ p.text if p.type == 'text' else "
          "'<start_of_image>' }}{% endfor %}{% endif %}"
          "{{ '<end_of_turn>\n' }}{% endfor %}"));
  ASSERT_TRUE(own.ok()) << own.status();
  const auto sample =
      BuildText(json, TextForm::kConversation, sizes, {own->get(), 4096});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->ids, expected->ids);
  EXPECT_EQ(sample->labels, expected->labels);
}

// The same text by a model's built-in template and by its own.
TEST_F(RenderedTextTest, VideosBecomeTheirFrames) {
  v1::Model model = ModelOf("qwen3_vl");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto built_in = ModelText::Create(model, tokenizer->get());
  ASSERT_TRUE(built_in.ok()) << built_in.status();
  model.set_chat_template("checkpoint");
  const auto own = ModelText::Create(
      model, tokenizer->get(),
      Make("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
           "{%- if m.content is string %}{{ m.content }}{% else %}"
           "{%- for p in m.content %}{{ p.text if p.type == 'text' else "
           "'<|vision_start|><|' + p.type + '_pad|><|vision_end|>' }}"
           "{%- endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"));
  ASSERT_TRUE(own.ok()) << own.status();
  const StreamText video = {
      .runs = 2, .run_tokens = 4, .before = {"<0.5 seconds>", "<1.5 seconds>"}};
  const std::vector<ImageSize> image = {{96, 64}};
  const std::vector<ImageSize> none;
  for (const auto& [said, sizes] :
       {std::pair("<image>Then <video>?", image),
        std::pair("<video>Then?", none), std::pair("<image>Then?", none)}) {
    SCOPED_TRACE(said);
    const std::string json =
        absl::StrCat(R"({"messages": [{"role": "user", "content": ")", said,
                     R"("}, {"role": "assistant", "content": "So."}]})");
    const auto expected = BuildText(json, TextForm::kConversation, sizes,
                                    {built_in->get(), 4096}, {video});
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto sample = BuildText(json, TextForm::kConversation, sizes,
                                  {own->get(), 4096}, {video});
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->ids, expected->ids);
    EXPECT_EQ(sample->labels, expected->labels);
  }
}

TEST_F(RenderedTextTest, WhatIsLeftOutIsADataFaultOfTheSample) {
  v1::Model model = ModelOf("qwen2_5_vl");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  model.set_chat_template("checkpoint");
  const auto text = ModelText::Create(model, tokenizer->get(), Make(kChatMl));
  ASSERT_TRUE(text.ok()) << text.status();
  const auto sample = BuildText(
      R"({"messages": [{"role": "user", "content": "q"}], "tools": ["t"]})",
      TextForm::kConversation, {}, {text->get(), 4096});
  EXPECT_TRUE(IsDataFault(sample.status())) << sample.status();
  EXPECT_THAT(std::string(sample.status().message()),
              HasSubstr("`tools`: the chat template leaves it out"));
}

}  // namespace
}  // namespace ballast
