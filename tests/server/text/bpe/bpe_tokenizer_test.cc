#include "server/text/bpe/bpe_tokenizer.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "tests/server/text/bpe/test_tokenizers.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> Make(const json& file) {
  auto tokenizer = MakeBpeTokenizer(file.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(BpeTokenizerTest, AppendsToTheOutput) {
  const auto tokenizer = Make(SmallTokenizerJson({{"a", "b"}}));
  std::vector<int32_t> ids = {7};
  ASSERT_TRUE(tokenizer->Encode("abc", &ids).ok());
  EXPECT_THAT(ids, ElementsAre(7, 256, 'c'));
}

TEST(BpeTokenizerTest, NamesTheOffsetOfInvalidUtf8) {
  const auto tokenizer = Make(SmallTokenizerJson());
  std::vector<int32_t> ids;
  const absl::Status status = tokenizer->Encode("ab\xC3(", &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at byte 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("0xC3"));
}

TEST(BpeTokenizerTest, FindsNormalizedTokensInNormalizedText) {
  json file = SmallTokenizerJson();
  file["normalizer"] = {{"type", "NFC"}};
  json token = AddedTokenJson(256, "e\u0301");
  token["normalized"] = true;
  file["added_tokens"] = {token, AddedTokenJson(257, "a\u0301")};
  const auto tokenizer = Make(file);
  EXPECT_THAT(EncodeOrFail(*tokenizer, "\u00e9"), ElementsAre(256));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "e\u0301"), ElementsAre(256));
  // The other token is searched for in the original text.
  EXPECT_THAT(EncodeOrFail(*tokenizer, "a\u0301"), ElementsAre(257));
  EXPECT_THAT(EncodeOrFail(*tokenizer, "\u00e1"), ElementsAre(0xC3, 0xA1));
}

TEST(BpeTokenizerTest, EndsReferToTheTextBeforeNormalizing) {
  json file = SmallTokenizerJson();
  file["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = Make(file);
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE(tokenizer->EncodeWithEnds("xe\u0301y", &ids, &ends).ok());
  EXPECT_THAT(ids, ElementsAre('x', 0xC3, 0xA9, 'y'));
  EXPECT_THAT(ends, ElementsAre(1, 4, 4, 5));
}

TEST(BpeTokenizerTest, APrefixedSpaceBelongsToTheFirstToken) {
  json file = SmallTokenizerJson();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = Make(file);
  std::vector<int32_t> ids;
  std::vector<size_t> ends;
  ASSERT_TRUE(tokenizer->EncodeWithEnds("ab", &ids, &ends).ok());
  EXPECT_THAT(ids, ElementsAre(' ', 'a', 'b'));
  EXPECT_THAT(ends, ElementsAre(0, 1, 2));
}

TEST(BpeTokenizerTest, KnowsItsAddedTokens) {
  json file = SmallTokenizerJson();
  file["added_tokens"] = json::array({AddedTokenJson(256, "<x>")});
  const auto tokenizer = Make(file);
  EXPECT_EQ(tokenizer->SpecialTokenId("<x>"), 256);
  EXPECT_EQ(tokenizer->SpecialTokenId("a"), std::nullopt);
  std::string text;
  ASSERT_TRUE(tokenizer->Decode({256, 'a'}, &text).ok());
  EXPECT_EQ(text, "<x>a");
  EXPECT_EQ(tokenizer->Decode({257}, &text).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tokenizer->Decode({-1}, &text).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BpeTokenizerTest, TheDigestIsTheFiles) {
  json file = SmallTokenizerJson({{"a", "b"}});
  const std::string digest = Make(file)->digest();
  EXPECT_EQ(Make(file)->digest(), digest);
  file["model"]["ignore_merges"] = true;
  EXPECT_NE(Make(file)->digest(), digest);
}

TEST(BpeTokenizerTest, ThreadsEncodeAtTheSameTime) {
  const auto tokenizer = Make(SmallTokenizerJson({{"a", "b"}, {"ab", "ab"}}));
  const std::string text = "ab abab <x> abb baab";
  const std::vector<int32_t> expected = EncodeOrFail(*tokenizer, text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(EncodeOrFail(*tokenizer, text), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ballast
