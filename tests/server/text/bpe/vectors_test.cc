// Compares with Hugging Face's ids of many texts, as written by
// make_vectors.py.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/text/bpe/bpe_tokenizer.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

struct Vectors {
  const char* name;
  // True if decoding returns the text, and each token covers its own bytes:
  // nothing is normalised, prefixed or dropped.
  bool lossless;
};

class BpeVectorsTest : public ::testing::TestWithParam<Vectors> {
 protected:
  BpeVectorsTest()
      : texts_(ReadJsonOrFail(TestDataPath("texts.json"))),
        ids_(ReadJsonOrFail(
            TestDataPath(std::string(GetParam().name) + ".ids.json"))),
        tokenizer_(MakeBpeTokenizer(ReadFileOrFail(
            TestDataPath(std::string(GetParam().name) + ".tokenizer.json")))) {}

  const nlohmann::json texts_;
  const nlohmann::json ids_;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer_;
};

TEST_P(BpeVectorsTest, IdsEqualHuggingFaces) {
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  ASSERT_GT(texts_.size(), 200u);
  ASSERT_EQ(ids_.size(), texts_.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    EXPECT_EQ(EncodeOrFail(**tokenizer_, texts_[i]),
              ids_[i].get<std::vector<int32_t>>())
        << "text " << i << ": " << texts_[i];
  }
}

TEST_P(BpeVectorsTest, EndsCoverTheText) {
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  for (const std::string text : texts_) {
    SCOPED_TRACE(text);
    std::vector<int32_t> ids;
    std::vector<size_t> ends;
    ASSERT_TRUE((*tokenizer_)->EncodeWithEnds(text, &ids, &ends).ok());
    ASSERT_EQ(ends.size(), ids.size());
    size_t begin = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_LE(begin, ends[i]);
      ASSERT_LE(ends[i], text.size());
      if (GetParam().lossless) {
        std::string spelled;
        ASSERT_TRUE((*tokenizer_)->Decode({ids[i]}, &spelled).ok());
        EXPECT_EQ(spelled, text.substr(begin, ends[i] - begin));
      }
      begin = ends[i];
    }
    if (GetParam().lossless) {
      EXPECT_EQ(begin, text.size());
    }
  }
}

TEST_P(BpeVectorsTest, DecodingReturnsTheText) {
  if (!GetParam().lossless)
    GTEST_SKIP() << "not applicable: this tokenizer changes texts";
  ASSERT_TRUE(tokenizer_.ok()) << tokenizer_.status();
  for (const std::string text : texts_) {
    std::string decoded;
    ASSERT_TRUE(
        (*tokenizer_)->Decode(EncodeOrFail(**tokenizer_, text), &decoded).ok());
    EXPECT_EQ(decoded, text);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BpeVectorsTest,
    ::testing::Values(Vectors{"flags", false}, Vectors{"gaps", false},
                      Vectors{"gpt2", true}, Vectors{"llama3", true},
                      Vectors{"o200k", true}, Vectors{"prefix_space", false},
                      Vectors{"qwen2", false}, Vectors{"sequence", false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ballast
