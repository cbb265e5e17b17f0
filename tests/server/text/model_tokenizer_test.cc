#include "server/text/model_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "server/model/model_profile.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class ModelTokenizerTest : public ::testing::Test {
 protected:
  // Makes a loaded model whose tokenizer has these added tokens, from id 256
  // on.
  static v1::Model MakeModel(std::initializer_list<const char*> added) {
    nlohmann::json file = SmallTokenizerJson();
    for (const char* content : added) {
      const int32_t id =
          256 + static_cast<int32_t>(file["added_tokens"].size());
      file["added_tokens"].push_back(AddedTokenJson(id, content));
    }
    const std::string path = ::testing::TempDir() + "/tokenizer.json";
    std::ofstream(path) << file;
    v1::Model model;
    model.set_profile("qwen2_5_vl");
    model.set_tokenizer(path);
    model.set_chat_template("chatml");
    EXPECT_TRUE(ApplyModelProfile(&model).ok());
    return model;
  }
};

TEST_F(ModelTokenizerTest, IdsFollowTheTokenizer) {
  v1::Model model =
      MakeModel({"<|endoftext|>", "<|im_start|>", "<|image_pad|>"});
  ASSERT_TRUE(OpenModelTokenizer(&model).ok());
  EXPECT_EQ(model.token_ids().end_of_text(), 256);
  EXPECT_EQ(model.token_ids().pad(), 256);
  EXPECT_EQ(model.token_ids().im_start(), 257);
  EXPECT_EQ(model.token_ids().image(), 258);
  // The tokenizer has no such token: the profile's id stays.
  EXPECT_EQ(model.token_ids().im_end(), 151645);
}

// People name the checkpoint's folder.
TEST_F(ModelTokenizerTest, AFolderIsNamedWithWhatIsWantedInIt) {
  v1::Model model = MakeModel({});
  model.set_tokenizer(::testing::TempDir());
  const auto opened = OpenModelTokenizer(&model);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr("is a folder; wanted the path of the tokenizer.json"));
}

TEST_F(ModelTokenizerTest, KeepsIdsThatAreSet) {
  v1::Model model = MakeModel({"<|im_start|>", "<|image_pad|>"});
  model.mutable_token_ids()->set_im_start(7);
  ASSERT_TRUE(OpenModelTokenizer(&model).ok());
  EXPECT_EQ(model.token_ids().im_start(), 7);
  model = MakeModel({"<|im_start|>"});
  model.set_profile("");
  ASSERT_TRUE(OpenModelTokenizer(&model).ok());
  EXPECT_EQ(model.token_ids().im_start(), 151644);
}

TEST_F(ModelTokenizerTest, AModelWithoutAudioReadsNoIdOfIt) {
  v1::Model model = MakeModel({"<|image_pad|>"});
  model.mutable_token_ids()->set_audio(7);
  EXPECT_TRUE(OpenModelTokenizer(&model).ok());
}

TEST_F(ModelTokenizerTest, TheImagesIdMustBeUnique) {
  v1::Model model = MakeModel({"<|image_pad|>"});
  model.mutable_token_ids()->set_pad(256);
  const absl::Status status = OpenModelTokenizer(&model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.token_ids: 256"));
}

TEST_F(ModelTokenizerTest, ATemplateNeedsItsTokens) {
  v1::Model model = MakeModel({"<|begin_of_text|>"});
  model.set_chat_template("llama3");
  const absl::Status status = OpenModelTokenizer(&model).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("<|start_header_id|>"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("chat_template"));
}

// A model with a SentencePiece file of tests/server/text/sentencepiece.
v1::Model SentencePiece(const std::string& name) {
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  model.set_tokenizer("tests/server/text/sentencepiece/testdata/" + name);
  model.set_chat_template("chatml");
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  return model;
}

TEST_F(ModelTokenizerTest, FollowsASentencePieceModelsSymbols) {
  v1::Model model = SentencePiece("symbols.model");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const v1::TokenIds& ids = model.token_ids();
  EXPECT_EQ(ids.image(), (*tokenizer)->SpecialTokenId("<|image_pad|>"));
  EXPECT_EQ(ids.vision_end(), (*tokenizer)->SpecialTokenId("<|vision_end|>"));
  EXPECT_EQ(ids.im_end(), (*tokenizer)->SpecialTokenId("<|im_end|>"));
  EXPECT_EQ(ids.end_of_text(), (*tokenizer)->SpecialTokenId("<|endoftext|>"));
  EXPECT_EQ(ids.pad(), ids.end_of_text());
  EXPECT_EQ(ids.video(), -1);
}

TEST_F(ModelTokenizerTest, ASentencePieceModelHasItsOwnEndOfText) {
  v1::Model model = SentencePiece("no_prefix.model");
  const auto tokenizer = OpenModelTokenizer(&model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(model.token_ids().end_of_text(),
            (*tokenizer)->SpecialTokenId("</s>"));
  EXPECT_EQ(model.token_ids().pad(), model.token_ids().end_of_text());
}

TEST_F(ModelTokenizerTest, TokensThatASentencePieceModelLacksMustBeSet) {
  v1::Model model = SentencePiece("llama.model");
  v1::TokenIds* ids = model.mutable_token_ids();
  const auto reason = [&] {
    v1::Model copy = model;
    const absl::Status status = OpenModelTokenizer(&copy).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(reason(), HasSubstr("model.token_ids.image: the tokenizer "));
  EXPECT_THAT(reason(), HasSubstr("llama.model has no token <|image_pad|>"));
  ids->set_image(32000);
  EXPECT_THAT(reason(), HasSubstr("model.token_ids.vision_start: "));
  ids->set_vision_start(32001);
  EXPECT_THAT(reason(), HasSubstr("model.token_ids.vision_end: "));
  ids->set_vision_end(32002);
  EXPECT_THAT(reason(), HasSubstr("model.token_ids.im_start: "));
  // A template without these tokens needs no ids.
  model.set_chat_template("custom");
  model.mutable_custom_template()->mutable_user()->set_prefix("USER: ");
  v1::Model copy = model;
  EXPECT_TRUE(OpenModelTokenizer(&copy).ok());
  EXPECT_EQ(copy.token_ids().image(), 32000);
  EXPECT_EQ(copy.token_ids().im_end(), -1);
  model.mutable_custom_template()->mutable_user()->set_suffix("<|im_end|>");
  EXPECT_THAT(reason(), HasSubstr("model.token_ids.im_end: "));
}

TEST_F(ModelTokenizerTest, BytesHaveNoTokensToFollow) {
  v1::Model model = MakeModel({});
  model.set_tokenizer("bytes");
  ASSERT_TRUE(OpenModelTokenizer(&model).ok());
  EXPECT_EQ(model.token_ids().image(), 151655);
}

using ::testing::ElementsAre;

TEST(BytesTokenizerTest, AppendsOneIdPerByte) {
  const auto tokenizer = MakeTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids = {7};
  ASSERT_TRUE(
      (*tokenizer)->Encode(absl::string_view("A\0\xff\xc3\xa4", 5), &ids).ok());
  EXPECT_THAT(ids, ElementsAre(7, 65, 0, 255, 195, 164));
}

TEST(BytesTokenizerTest, KnowsNoSpecialTokens) {
  const auto tokenizer = MakeTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode("<|im_end|>", &ids).ok());
  EXPECT_EQ(ids.size(), 10u);
}

TEST(BytesTokenizerTest, AllHaveTheSameDigest) {
  EXPECT_EQ((*MakeTokenizer("bytes"))->digest(),
            (*MakeTokenizer("bytes"))->digest());
}

TEST(BytesTokenizerTest, DecodesAndReturnsEnds) {
  const auto tokenizer = MakeTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok());
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE((*tokenizer)->EncodeWithEnds("hi", &ids, &ends).ok());
  EXPECT_THAT(ends, ElementsAre(1, 2));
  std::string text;
  ASSERT_TRUE((*tokenizer)->Decode(ids, &text).ok());
  EXPECT_EQ(text, "hi");
  EXPECT_EQ((*tokenizer)->Decode({256}, &text).code(),
            absl::StatusCode::kInvalidArgument);
}

class MakeTokenizerTest : public ::testing::Test {
 protected:
  static std::string Write(const std::string& content) {
    const std::string path = ::testing::TempDir() + "/some.tokenizer";
    std::ofstream(path) << content;
    return path;
  }
};

TEST_F(MakeTokenizerTest, ReadsATokenizerJson) {
  const auto tokenizer =
      MakeTokenizer(Write(SmallTokenizerJson({{"a", "b"}}).dump()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(EncodeOrFail(**tokenizer, "ab"), ElementsAre(256));
}

TEST_F(MakeTokenizerTest, ErrorsNameTheFile) {
  const std::string missing = ::testing::TempDir() + "/no such file";
  absl::Status status = MakeTokenizer(missing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
  for (const char* content : {"", "\x0a\x05hello", "{", "{}"}) {
    const std::string path = Write(content);
    status = MakeTokenizer(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_FALSE(MakeTokenizer(::testing::TempDir()).ok());
}

}  // namespace
}  // namespace ballast
