#include "server/text/bpe/added_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

AddedToken Token(int32_t id, const std::string& content) {
  AddedToken token;
  token.id = id;
  token.content = content;
  return token;
}

// The pieces of `text`: ids (-1 for text) and the bytes that they cover.
std::vector<std::pair<int32_t, std::string>> Split(
    const std::vector<AddedToken>& tokens, const std::string& text) {
  const auto matcher = AddedTokenMatcher::Create(tokens);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  std::vector<std::pair<int32_t, std::string>> pieces;
  RegexScratch scratch;
  const absl::Status status =
      matcher->Split(text, &scratch, [&](int32_t id, size_t begin, size_t end) {
        pieces.emplace_back(id, text.substr(begin, end - begin));
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

TEST(AddedTokensTest, WithoutTokensTheTextIsOnePiece) {
  EXPECT_THAT(Split({}, "abc"), ElementsAre(Pair(-1, "abc")));
  EXPECT_THAT(Split({}, ""), IsEmpty());
}

TEST(AddedTokensTest, TheLongestCountsFromLeftToRight) {
  const std::vector<AddedToken> tokens = {Token(1, "<a>"), Token(2, "<a><b>"),
                                          Token(3, "b>c")};
  EXPECT_THAT(Split(tokens, "x<a><b>c<a><a"),
              ElementsAre(Pair(-1, "x"), Pair(2, "<a><b>"), Pair(-1, "c"),
                          Pair(1, "<a>"), Pair(-1, "<a")));
}

TEST(AddedTokensTest, StripIncludesWhiteSpace) {
  std::vector<AddedToken> tokens = {Token(1, "<l>"), Token(2, "<r>")};
  tokens[0].lstrip = true;
  tokens[1].rstrip = true;
  EXPECT_THAT(Split(tokens, "a \n<l> b <r>\u3000\tc"),
              ElementsAre(Pair(-1, "a"), Pair(1, " \n<l>"), Pair(-1, " b "),
                          Pair(2, "<r>\u3000\t"), Pair(-1, "c")));
  // White space taken by one token is not available to the next.
  EXPECT_THAT(Split(tokens, "<r> <l>"),
              ElementsAre(Pair(2, "<r> "), Pair(1, "<l>")));
}

TEST(AddedTokensTest, SingleWordsStandAlone) {
  std::vector<AddedToken> tokens = {Token(1, "cat")};
  tokens[0].single_word = true;
  EXPECT_THAT(Split(tokens, "cat"), ElementsAre(Pair(1, "cat")));
  EXPECT_THAT(Split(tokens, "a cat!"),
              ElementsAre(Pair(-1, "a "), Pair(1, "cat"), Pair(-1, "!")));
  for (const char* text : {"cats", "bobcat", "_cat", "cat9", "\u00e9cat",
                           "cat\u0301", "cat\u200d"}) {
    EXPECT_THAT(Split(tokens, text), ElementsAre(Pair(-1, text))) << text;
  }
}

TEST(AddedTokensTest, PartialMatchesTakeLittleTime) {
  const std::string content(1024, 'a');
  const std::vector<AddedToken> tokens = {Token(1, content + "b")};
  EXPECT_EQ(AddedTokenMatcher::Create(tokens).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Split({Token(1, content)}, std::string(100000, 'a') + "b").size(),
              100000u / 1024 + 1);
}

}  // namespace
}  // namespace ballast
