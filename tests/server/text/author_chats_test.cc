// Compares conversations with those of the models' authors' training code:
// texts and learnt pieces as make_author_chats.py writes the code's rules a
// second time; ids and labels as LLaVA's and LLaVA-NeXT's preprocess_v1 gave
// them over llama.model, with -200 for an image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/model/profiles.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

constexpr char kLlamaModel[] =
    "tests/server/text/sentencepiece/testdata/llama.model";
constexpr int32_t kImageId = 100000;  // no token of either
constexpr int32_t kEndId = 100001;

// Each byte is a token, so that what is learnt is seen to the byte.
std::string ChatTokenizer() {
  nlohmann::json json =
      ReadJsonOrFail("tests/server/text/testdata/family_chats.tokenizer.json");
  json["model"]["merges"] = nlohmann::json::array();
  const std::string path = ::testing::TempDir() + "/author_chats.json";
  std::ofstream(path) << json.dump();
  return path;
}

nlohmann::json ReadVectors(const std::string& name) {
  return ReadJsonOrFail(absl::StrCat("tests/server/text/testdata/", name));
}

// The texts of one family.
class Author {
 public:
  Author(const std::string& family, const std::string& tokenizer,
         const std::string& system_prompt = "")
      : tokenizer_(MakeTokenizer(tokenizer).value()) {
    v1::Model model;
    model.set_profile(family);
    model.set_chat_template(family);
    model.set_system_prompt(system_prompt);
    model.mutable_token_ids()->set_image(kImageId);
    model.mutable_token_ids()->set_end_of_text(kEndId);
    EXPECT_TRUE(ApplyModelProfile(&model).ok());
    auto text = ModelText::Create(model, tokenizer_.get());
    EXPECT_TRUE(text.ok()) << text.status();
    if (text.ok()) text_ = *std::move(text);
  }

  bool ok() const { return text_ != nullptr; }
  std::string Whole(const std::string& json, size_t images) const {
    return text_->WholeText(json, images).value_or("");
  }
  TextSample Build(const std::string& json, size_t images) const {
    const std::vector<ImageSize> sizes(images, {336, 336});
    const auto sample = BuildText(json, TextForm::kConversation, sizes,
                                  {text_.get(), 1u << 20});
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.value_or(TextSample());
  }
  std::string Decode(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) {
      if (id == kEndId) {
        text += "<|endoftext|>";
      } else if (id != -100) {
        EXPECT_TRUE(tokenizer_->Decode({id}, &text).ok());
      }
    }
    return text;
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<const ModelText> text_;
};

// A message in parts, as OpenAI has them: images without line feeds.
std::string InParts() {
  return R"({"messages": [{"role": "user", "content": [{"type": "image"},
      {"type": "text", "text": "What?"}]},
      {"role": "assistant", "content": "A cat."}]})";
}

TEST(AuthorChatsTest, TextsAndWhatIsLearntEqualTheAuthorsCode) {
  const nlohmann::json vectors = ReadVectors("author_chats.json");
  ASSERT_GT(vectors.size(), 100u);
  for (const nlohmann::json& vector : vectors) {
    const std::string json =
        nlohmann::json{{"conversations", vector["conversations"]}}.dump();
    const size_t images = vector["images"];
    SCOPED_TRACE(vector["family"].dump() + json);
    const Author author(vector["family"], ChatTokenizer());
    ASSERT_TRUE(author.ok());
    EXPECT_EQ(author.Whole(json, images), vector["text"]);
    std::string learnt;
    for (const nlohmann::json& piece : vector["learnt"]) {
      learnt += piece.get<std::string>();
    }
    EXPECT_EQ(author.Decode(author.Build(json, images).labels), learnt);
  }
}

TEST(AuthorChatsTest, IdsAndLabelsEqualLlavasOverSentencePiece) {
  const nlohmann::json vectors = ReadVectors("author_pieces.json");
  ASSERT_GT(vectors.size(), 10u);
  for (const nlohmann::json& vector : vectors) {
    const std::string json =
        nlohmann::json{{"conversations", vector["conversations"]}}.dump();
    SCOPED_TRACE(vector["family"].dump() + json);
    const Author author(vector["family"], kLlamaModel);
    ASSERT_TRUE(author.ok());
    const TextSample sample = author.Build(json, vector["images"]);
    // Of a run of placeholders the first alone, and labels at their tokens.
    std::vector<int32_t> ids;
    std::vector<int32_t> labels;
    for (size_t i = 0; i < sample.ids.size(); ++i) {
      const bool is_image = sample.ids[i] == kImageId;
      if (is_image && i > 0 && sample.ids[i - 1] == kImageId) continue;
      ids.push_back(is_image ? -200 : sample.ids[i]);
      labels.push_back(i > 0 ? sample.labels[i - 1] : -100);
    }
    EXPECT_EQ(ids, vector["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(labels, vector["labels"].get<std::vector<int32_t>>());
  }
}

// The authors' data have `<image>\n`, and no parts.
TEST(AuthorChatsTest, APartsImageIsOnALineOfItsOwn) {
  for (const char* family : {"llava1_5", "vipllava", "llava_next",
                             "llava_onevision", "internvl3", "kimi_k25"}) {
    SCOPED_TRACE(family);
    const std::string text =
        Author(family, ChatTokenizer()).Whole(InParts(), 1);
    EXPECT_NE(text.find("<image>\nWhat?"), std::string::npos) << text;
  }
}

TEST(AuthorChatsTest, ASystemPromptReplacesTheAuthors) {
  EXPECT_EQ(Author("llava_onevision", ChatTokenizer(), "Be brief.")
                .Whole(InParts(), 1)
                .substr(0, 36),
            "<|im_start|>system\nBe brief.<|im_end");
}

}  // namespace
}  // namespace ballast
