// Compares conversations with images with the ids of the model families'
// processors, as written by check_family_chats.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr char kTestData[] = "tests/server/text/testdata/";
constexpr int32_t kEndOfTextId = 100001;  // no token

const Tokenizer& FamilyTokenizer() {
  static const auto& tokenizer =
      *MakeTokenizer(std::string(kTestData) + "family_chats.tokenizer.json")
           .value()
           .release();
  return tokenizer;
}

absl::StatusOr<TextSample> Tokenize(const std::string& family,
                                    const std::vector<Turn>& turns,
                                    const std::vector<ImageSize>& sizes,
                                    const v1::TokenIds& given = {}) {
  v1::Model model;
  model.set_profile(family);
  model.set_chat_template(family);
  *model.mutable_token_ids() = given;
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  if (!model.token_ids().has_end_of_text() ||
      model.token_ids().end_of_text() < 0) {
    model.mutable_token_ids()->set_end_of_text(kEndOfTextId);
  }
  const ImageFamily* images = FindImageFamily(family);
  model.mutable_token_ids()->set_image(
      FamilyTokenizer().SpecialTokenId(images->marks.placeholder).value_or(-1));
  const auto text = ModelText::Create(model, &FamilyTokenizer());
  if (!text.ok()) return text.status();
  nlohmann::json messages = nlohmann::json::array();
  for (const Turn& turn : turns) {
    messages.push_back({{"role", RoleName(turn.role)}, {"content", turn.text}});
  }
  return BuildText(nlohmann::json{{"messages", messages}}.dump(),
                   TextForm::kConversation, sizes, {text->get(), UINT32_MAX});
}

// The family's name under the rules of transformers.
std::string Theirs(const std::string& family) {
  return NameUnderRules(family, v1::Model::RULES_TRANSFORMERS);
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
    std::vector<ImageSize> sizes;
    for (const nlohmann::json& size : vector["images"]) {
      sizes.push_back({.width = size[1], .height = size[0]});
    }
    const auto turns = ParseConversation(
        nlohmann::json{{"messages", vector["messages"]}}.dump());
    ASSERT_TRUE(turns.ok()) << turns.status();
    const auto sample = Tokenize(Theirs(vector["family"]), *turns, sizes);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->ids, IdsOf(vector["ids"]));
    EXPECT_EQ(sample->labels.size(), sample->ids.size());
  }
  // Not of transformers: family_videos_test.
  families.insert("llava_video");
  // Written by hand below.
  families.insert("vipllava");
  // SmolVLM's.
  families.insert("smolvlm_500m");
  EXPECT_THAT(ProfileNames(HasChat), ::testing::ElementsAreArray(families));
}

// Ids of Qwen's marks and of ChatML say nothing of another model's texts.
TEST(FamilyConversationTest, WritesMarksByNameWhateverIdsAreGiven) {
  v1::TokenIds given;
  given.set_vision_start(1);
  given.set_vision_end(2);
  given.set_im_start(3);
  given.set_im_end(4);
  const std::vector<Turn> turns = {{Role::kUser, "<image>Hi"},
                                   {Role::kAssistant, "Ho"}};
  const auto plain = Tokenize("internvl3", turns, {{448, 448}});
  const auto other = Tokenize("internvl3", turns, {{448, 448}}, given);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->ids, plain->ids);
  EXPECT_EQ(other->labels, plain->labels);
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
    const auto sample = Tokenize(family, turns, {{500, 400}});
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
  // The space before an answer is learnt; this tokenizer joins it to the colon.
  EXPECT_EQ(learnt("llava1_5"), ": Here.</s>: Yes</s>");
  EXPECT_EQ(learnt("vipllava"), ": Here.</s>: Yes</s>");
  EXPECT_EQ(learnt(Theirs("llava1_5")), "Here. Yes ");
  EXPECT_EQ(learnt(Theirs("vipllava")), "Here.###Yes");
  EXPECT_EQ(learnt("pixtral"), "Here.</s>Yes</s>");
  EXPECT_EQ(learnt("kimi_k25"), "Here.<|im_end|>Yes<|im_end|>");
  EXPECT_EQ(learnt("minicpmv4_6"), "Here.<|im_end|>Yes<|im_end|>");
  EXPECT_EQ(learnt("gemma4"), "Here.<turn|>Yes<turn|>");
  EXPECT_EQ(learnt("ernie4_5_vl"), "Yes<|end_of_sentence|>");
  EXPECT_EQ(learnt(Theirs("ernie4_5_vl")),
            "Here.<|end_of_sentence|>Yes<|end_of_sentence|>");
  // What a model writes to end its answer begins the user's next turn.
  EXPECT_EQ(learnt(Theirs("glm4v")), "Here.<|user|>Yes");
  EXPECT_EQ(learnt(Theirs("glm46v")), "Here.<|user|>Yes");
}

std::string GetText(const std::vector<int32_t>& ids) {
  std::string text;
  EXPECT_TRUE(FamilyTokenizer().Decode(ids, &text).ok());
  return text;
}

// Written by hand, from the checkpoints' own files where there are any.
TEST(FamilyConversationTest, WritesTurnsAsTheTemplatesDo) {
  const auto text = [](const std::string& family,
                       const std::vector<Turn>& turns) {
    const auto sample = Tokenize(Theirs(family), turns, {});
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? GetText(sample->ids) : "";
  };
  const std::vector<Turn> turns = {{Role::kSystem, " Be \n"},
                                   {Role::kUser, " Hi \n"},
                                   {Role::kAssistant, " Ho \n"},
                                   {Role::kUser, "So?"},
                                   {Role::kAssistant, "Yes"}};
  EXPECT_EQ(text("gemma4", turns),
            "<bos><|turn>system\nBe<turn|>\n<|turn>user\nHi<turn|>\n"
            "<|turn>model\nHo<turn|>\n<|turn>user\nSo?<turn|>\n"
            "<|turn>model\nYes<turn|>\n");
  EXPECT_EQ(text("glm4v", turns),
            "[gMASK]<sop><|system|>\n Be \n<|user|>\n Hi \n<|assistant|>\n Ho "
            "\n<|user|>\nSo?<|assistant|>\nYes");
  EXPECT_EQ(text("glm46v", turns),
            "[gMASK]<sop><|system|>\n Be \n<|user|>\n Hi \n<|assistant|>\n"
            "<think></think>\nHo<|user|>\nSo?<|assistant|>\n<think></think>\n"
            "Yes");
  EXPECT_EQ(text("vipllava", turns),
            "<s> Be \n###Human:  Hi \n###Assistant:  Ho \n###Human: So?"
            "###Assistant: Yes");
  // An empty answer ends its thoughts and says nothing.
  EXPECT_EQ(text("glm46v", {{Role::kUser, "a"}, {Role::kAssistant, " \n"}}),
            "[gMASK]<sop><|user|>\na<|assistant|>\n<think></think>");
  EXPECT_EQ(text("ernie4_5_vl", turns),
            "<|begin_of_sentence|> Be \n\nUser:  Hi \n\nAssistant:  Ho \n"
            "<|end_of_sentence|>User: So?\nAssistant: Yes<|end_of_sentence|>");
  EXPECT_EQ(text("hunyuan_vl", {turns[0], turns[1], turns[2]}),
            "<｜hy_begin▁of▁sentence｜> Be \n<｜hy_place▁holder▁no▁3｜> Hi \n"
            "<｜hy_User｜> Ho \n<｜hy_Assistant｜>");
  EXPECT_EQ(
      text("hunyuan_vl", {{Role::kSystem, ""}, {Role::kUser, "a"}}),
      "<｜hy_begin▁of▁sentence｜><｜hy_place▁holder▁no▁3｜>a<｜hy_User｜>");
}

// The images of ERNIE are numbered through the whole conversation.
TEST(FamilyConversationTest, NumbersImages) {
  const auto sample = Tokenize("ernie4_5_vl",
                               {{Role::kUser, "a<image><image>b"},
                                {Role::kAssistant, "c"},
                                {Role::kUser, "<image>"}},
                               {{56, 56}, {56, 56}, {56, 56}});
  ASSERT_TRUE(sample.ok()) << sample.status();
  const std::string text = GetText(sample->ids);
  const size_t first = text.find("User: aPicture 1:<|IMAGE_START|>");
  const size_t second = text.find("<|IMAGE_END|>Picture 2:<|IMAGE_START|>");
  const size_t third = text.find("User: Picture 3:<|IMAGE_START|>");
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_NE(third, std::string::npos);
}

TEST(FamilyConversationTest, RefusesWhatIsNotKnownForCertain) {
  const auto message = [](const std::string& family,
                          const std::vector<Turn>& turns,
                          const std::vector<ImageSize>& sizes = {}) {
    return std::string(Tokenize(family, turns, sizes).status().message());
  };
  const Turn system = {Role::kSystem, "s"};
  const Turn question = {Role::kUser, "q"};
  const Turn answer = {Role::kAssistant, "a"};
  EXPECT_THAT(message("hunyuan_vl", {question, answer, question}),
              HasSubstr("turn 3 is of the user; the chat template of "
                        "hunyuan_vl wants one question and its answer"));
  EXPECT_THAT(message("hunyuan_vl", {system, answer}),
              HasSubstr("user and assistant in turn, the user first"));
  EXPECT_THAT(message("ernie4_5_vl", {question, question}),
              HasSubstr("user and assistant in turn, the user first"));
  EXPECT_THAT(message("gemma4", {question, answer, answer}),
              HasSubstr("turn 3 is of the assistant; the chat template of "
                        "gemma4 wants a turn of the user between two"));
  for (const char* family :
       {"ernie4_5_vl", "gemma4", "glm46v", "glm4v", "hunyuan_vl"}) {
    SCOPED_TRACE(family);
    EXPECT_THAT(message(family, {question, system}),
                HasSubstr("a system turn only at the start"));
    EXPECT_THAT(
        message(family, {{Role::kSystem, "<image>"}, question}, {{56, 56}}),
        HasSubstr("without images"));
  }
  for (const char* family : {"ernie4_5_vl", "glm46v", "glm4v", "hunyuan_vl"}) {
    SCOPED_TRACE(family);
    EXPECT_THAT(
        message(family, {question, {Role::kAssistant, "<image>"}}, {{56, 56}}),
        HasSubstr("images in turns of the user alone"));
  }
  EXPECT_THAT(message("gemma3", {{Role::kSystem, "<image>"}, question}),
              HasSubstr("a system turn without images"));
}

TEST(FamilyConversationTest, RefusesWhatATemplateDoesNotRender) {
  const auto message = [](const std::string& family,
                          const std::vector<Turn>& turns,
                          const std::vector<ImageSize>& sizes) {
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
            "text has 1 <image> marks, the sample has 0 images; each mark "
            "is one image");
  EXPECT_EQ(message("internvl3", {{Role::kUser, "<image>"}}, {{9, 9}, {9, 9}}),
            "text has 1 <image> marks, the sample has 2 images; each mark "
            "is one image");
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
  for (const char* family :
       {"ernie4_5_vl", "glm46v", "kimi_k25", "minicpmv4_6"}) {
    EXPECT_THAT(
        message(family,
                {{Role::kUser, "a"}, {Role::kAssistant, "<think>b</think>c"}},
                {}),
        HasSubstr("turn 2 is of the assistant"));
  }
  for (const char* thought : {"<|channel>thought\nb", "b<channel|>c"}) {
    EXPECT_THAT(
        message("gemma4", {{Role::kUser, "a"}, {Role::kAssistant, thought}},
                {}),
        HasSubstr("turn 2 is of the assistant; the chat template of gemma4 "
                  "wants texts without <"));
  }
}

TEST(FamilyConversationTest, NamesATokenThatTheTokenizerLacks) {
  const auto bytes = MakeTokenizer("bytes");
  v1::Model model;
  model.set_profile("internvl3");
  model.set_chat_template("internvl3");
  model.set_tokenizer("bytes");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  const absl::Status status = ModelText::Create(model, bytes->get()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "model.tokenizer: bytes: the tokenizer lacks the token <|im_start|> "
      "of the family internvl3; give the tokenizer of its checkpoint");
}

// Marks around images in texts that no chat template of the family formats:
// documents, other chat templates, token ids.

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
const std::vector<ImageSize> kOne = {{560, 560}};

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
      const std::vector<ImageSize>& sizes = kOne) const {
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
