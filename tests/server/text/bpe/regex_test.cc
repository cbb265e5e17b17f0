#include "server/text/bpe/regex.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// All matches of the pattern in `text`.
std::vector<std::string> Matches(const std::string& pattern,
                                 const std::string& text) {
  const auto translated = ToPcre2Pattern(pattern);
  EXPECT_TRUE(translated.ok()) << translated.status();
  if (!translated.ok()) return {};
  const auto regex = Regex::Create(*translated);
  EXPECT_TRUE(regex.ok()) << regex.status();
  if (!regex.ok()) return {};
  RegexScratch scratch;
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const auto match = regex->Find(text, at, &scratch);
    EXPECT_TRUE(match.ok()) << match.status();
    if (!match.ok() || !match->has_value()) break;
    found.push_back(
        text.substr((*match)->begin, (*match)->end - (*match)->begin));
    at = (*match)->end;
  }
  return found;
}

TEST(PatternSyntaxTest, UnderstandsThePatternsOfTokenizers) {
  EXPECT_THAT(Matches(R"(\p{Lu}\p{Ll}*|\d{1,2})", "AbC 123 \u00c4\u00f6"),
              ElementsAre("Ab", "C", "12", "3", "\u00c4\u00f6"));
  EXPECT_THAT(Matches(R"([^\s\p{L}]+)", "a1- b+"), ElementsAre("1-", "+"));
  EXPECT_THAT(Matches(R"((?i:'s|'ll))", "x's y'LL z'\u017f"),
              ElementsAre("'s", "'LL", "'\u017f"));
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s)", "a  b \n"),
              ElementsAre(" ", " ", " \n"));
  EXPECT_THAT(Matches(R"((?<=a)b|(?<!a)c)", "abacc"), ElementsAre("b", "c"));
  EXPECT_THAT(Matches(R"([a\-z]+|[0-9]{2,}|\.\*)", "a-zb 1 22 .*"),
              ElementsAre("a-z", "22", ".*"));
  EXPECT_THAT(Matches(R"(\P{L}+?x)", "ab--x"), ElementsAre("--x"));
}

TEST(PatternSyntaxTest, KnowsCharactersNewerThanPcre2) {
  // A letter, a digit and a mark of Unicode 16.
  EXPECT_THAT(Matches(R"(\p{L}+)", "a\U000105C0b"),
              ElementsAre("a\U000105C0b"));
  EXPECT_THAT(Matches(R"(\p{N}|\d)", "\U00010D40"), ElementsAre("\U00010D40"));
  EXPECT_THAT(Matches(R"([^\p{M}])", "\u0897"), IsEmpty());
}

TEST(PatternSyntaxTest, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(Matches(R"(\s)", "a\u0085b\u00a0c\u3000d\u180ee\u001cf"),
              ElementsAre("\u0085", "\u00a0", "\u3000"));
}

TEST(PatternSyntaxTest, RefusesSyntaxThatTheLibrariesReadDifferently) {
  const std::pair<const char*, const char*> faults[] = {
      {R"(\w+)", "an unsupported escape at byte 0"},
      {R"(a\b)", "at byte 1"},
      {R"([[:alpha:]])", "a class within a class"},
      {R"([a&&b])", "a class within a class"},
      {R"(\p{Han})", "property Han; wanted a general category"},
      {R"(\p{L)", "a property without its {name}"},
      {R"(\pL)", "a property without its {name}"},
      {R"((?i:\p{Lu}))", "a property in a group (?i:...)"},
      {R"((?i)a)", "an unsupported kind of group"},
      {R"((?P<x>a))", "an unsupported kind of group"},
      {R"((*UTF)a)", "an unsupported kind of group"},
      {R"(a.b)", "`.`"},
      {R"(^a)", "`^`"},
      {R"(a$)", "`$`"},
      {R"(*a)", "`*`"},
      {R"(a{2}+)", "a repetition of a repetition"},
      {R"(a{,2})", "a repetition that is not"},
      {R"(a{1,2,3})", "a repetition that is not"},
      {R"(a{)", "a `{` without `}`"},
      {R"((a)", "an unterminated group"},
      {R"(a))", "an unmatched `)`"},
      {R"([a)", "an unterminated class"},
      {R"([])", "an empty class"},
      {R"([b-a])", "a range whose end"},
      {R"([a\)", "an unsupported escape"},
  };
  for (const auto& [pattern, complaint] : faults) {
    const absl::Status status = ToPcre2Pattern(pattern).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr(complaint));
    EXPECT_THAT(std::string(status.message()), HasSubstr(pattern));
  }
}

TEST(PatternSyntaxTest, LiteralsMatchOnlyThemselves) {
  const auto regex = Regex::Create(Pcre2Literal("a.\u00e9*"));
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  const auto match = regex->Find("ab\u00e9 a.\u00e9*", 0, &scratch);
  ASSERT_TRUE(match.ok() && match->has_value());
  EXPECT_EQ((*match)->begin, 5u);
}

TEST(RegexTest, RefusesPatternsThatMatchTheEmptyText) {
  for (const char* pattern : {"a*", "(?=a)", "a|"}) {
    EXPECT_EQ(Regex::Create(pattern).status().code(),
              absl::StatusCode::kInvalidArgument)
        << pattern;
  }
  EXPECT_EQ(Regex::Create("(").status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Exponential backtracking ends in an error instead of taking years.
TEST(RegexTest, StopsEndlessBacktracking) {
  const auto regex = Regex::Create("(?:a+)+[bd]");
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexScratch scratch;
  EXPECT_EQ(
      regex->Find(std::string(64, 'a') + "c", 0, &scratch).status().code(),
      absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ballast
