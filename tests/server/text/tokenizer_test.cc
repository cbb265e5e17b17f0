#include "server/text/tokenizer.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
