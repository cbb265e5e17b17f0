#include "server/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BytesTokenizerTest, AppendsOneIdAByte) {
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

TEST(BytesTokenizerTest, DigestIsEqualForAllOfThem) {
  EXPECT_EQ((*MakeTokenizer("bytes"))->digest(),
            (*MakeTokenizer("bytes"))->digest());
}

TEST(MakeTokenizerTest, SaysThatBytesWorksWhereAFileDoesNot) {
  const auto tokenizer = MakeTokenizer("data/tokenizer.json");
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kUnimplemented);
  const std::string message(tokenizer.status().message());
  EXPECT_THAT(message, HasSubstr("data/tokenizer.json"));
  EXPECT_THAT(message, HasSubstr("`bytes`"));
}

}  // namespace
}  // namespace ballast
