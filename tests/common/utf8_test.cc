#include "common/utf8.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(Utf8Test, ReadsAndWritesCharacters) {
  const std::pair<uint32_t, std::string> cases[] = {
      {0, std::string(1, '\0')}, {0x7F, "\x7F"},          {0x80, "\u0080"},
      {0x7FF, "\u07FF"},         {0x800, "\u0800"},       {0xFFFF, "\uFFFF"},
      {0x10000, "\U00010000"},   {0x10FFFF, "\U0010FFFF"}};
  for (const auto& [code, bytes] : cases) {
    const Utf8Character first = FirstCharacter(bytes + "x");
    EXPECT_EQ(first.code, code);
    EXPECT_EQ(first.bytes, bytes.size());
    EXPECT_EQ(LastCharacter("x" + bytes).code, code);
    std::string written;
    AppendCharacter(code, &written);
    EXPECT_EQ(written, bytes);
    EXPECT_EQ(FirstInvalidUtf8(bytes), bytes.size());
  }
}

// Expected values are those of Python's bytes.decode(errors="replace").
TEST(Utf8Test, FindsAndReplacesWhatIsBroken) {
  struct Case {
    std::string bytes;
    size_t at;
    std::string replaced;
  };
  const Case cases[] = {
      {"ab\xFF"
       "c",
       2,
       "ab\uFFFD"
       "c"},
      {"\x80", 0, "\uFFFD"},
      {"\xC3", 0, "\uFFFD"},
      {"a\xC3(", 1, "a\uFFFD("},
      {"\xE2\x82", 0, "\uFFFD"},
      {"\xE2\x82z", 0, "\uFFFDz"},
      {"\xC0\xAF", 0, "\uFFFD\uFFFD"},            // overlong
      {"\xE0\x80\xAF", 0, "\uFFFD\uFFFD\uFFFD"},  // overlong
      {"\xED\xA0\x80", 0, "\uFFFD\uFFFD\uFFFD"},  // a surrogate
      {"\xF4\x90\x80\x80", 0, "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xF0\x9F\x98", 0, "\uFFFD"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", 0, "\uFFFD\U0001F600"},
      {"\u00e9\xE9", 2, "\u00e9\uFFFD"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(FirstInvalidUtf8(c.bytes), c.at) << c.replaced;
    EXPECT_EQ(ReplaceInvalidUtf8(c.bytes), c.replaced);
    EXPECT_EQ(CheckUtf8(c.bytes).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(CheckUtf8("\u00e9").ok());
  EXPECT_EQ(ReplaceInvalidUtf8("\u00e9"), "\u00e9");
}

TEST(Utf8Test, TheErrorSaysWhereAndWhat) {
  const std::string message(CheckUtf8("abc\xFE").message());
  EXPECT_THAT(message, HasSubstr("byte 3"));
  EXPECT_THAT(message, HasSubstr("0xFE"));
}

TEST(Utf8Test, WhiteSpaceIsUnicodes) {
  for (const uint32_t code : {0x9u, 0xDu, 0x20u, 0x85u, 0xA0u, 0x3000u}) {
    EXPECT_TRUE(IsWhiteSpace(code)) << code;
  }
  for (const uint32_t code : {0x0u, 0x1Cu, 0x180Eu, 0x200Bu, 0xFEFFu, 0x41u}) {
    EXPECT_FALSE(IsWhiteSpace(code)) << code;
  }
}

}  // namespace
}  // namespace ballast
