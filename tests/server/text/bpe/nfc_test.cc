#include "server/text/bpe/nfc.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

struct Normalized {
  bool changed;
  std::string text;
  std::vector<NfcChange> changes;
};

Normalized Normalize(const std::string& text) {
  Normalized result{false, text, {}};
  result.changed = NormalizeNfc(text, &result.text, &result.changes);
  return result;
}

// Expected values are from the Unicode standard (chapter 3.11, annex 15).
TEST(NfcTest, ComposesAndOrders) {
  const std::pair<const char*, const char*> cases[] = {
      {"e\u0301", "\u00e9"},
      {"A\u030a", "\u00c5"},
      {"\u212b", "\u00c5"},                // the Angstrom sign
      {"\u2126", "\u03a9"},                // the Ohm sign
      {"s\u0323\u0307", "\u1e69"},         // both marks, in order
      {"s\u0307\u0323", "\u1e69"},         // and in disorder
      {"q\u0307\u0323", "q\u0323\u0307"},  // ordered, nothing composed
      {"\u1100\u1161\u11a8", "\uac01"},    // Hangul by rule
      {"\uac00\u11a8", "\uac01"},
      {"\u0958", "\u0915\u093c"},  // excluded from composition
      {"\u0344", "\u0308\u0301"},
      {"\uf900", "\u8c48"},  // a singleton
      {"\U0001d15e", "\U0001d157\U0001d165"},
      {"a\u0327\u0301\u0301", "\u00e1\u0327\u0301"},
  };
  for (const auto& [text, expected] : cases) {
    const Normalized result = Normalize(std::string("x ") + text + " y");
    EXPECT_TRUE(result.changed) << text;
    EXPECT_EQ(result.text, std::string("x ") + expected + " y") << text;
  }
}

TEST(NfcTest, LeavesNormalizedTextUnchanged) {
  for (const char* text :
       {"", "plain", "caf\u00e9", "\u1e69", "\uac01", "q\u0323\u0307",
        "\U0001f469\u200d\U0001f4bb", "\u0301alone", "\u05d0\u05b7"}) {
    EXPECT_FALSE(Normalize(text).changed) << text;
  }
}

TEST(NfcTest, MapsChangedTextToTheOriginal) {
  // a b e+acute c, twice.
  const Normalized result = Normalize("abe\u0301ce\u0301");
  ASSERT_EQ(result.text, "ab\u00e9c\u00e9");
  ASSERT_EQ(result.changes.size(), 2u);
  // In bytes: e and its mark take three, composed two.
  const size_t expected[] = {0, 1, 2, 5, 5, 6, 9, 9};
  for (size_t end = 0; end < 8; ++end) {
    EXPECT_EQ(OriginalEnd(result.changes, end), expected[end]) << end;
  }
}

TEST(NfcTest, ManyMarksTakeLittleTime) {
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += i % 2 == 0 ? "\u0307" : "\u0323";
  const Normalized result = Normalize(text);
  // The dots below are ordered first, and one of each is composed.
  EXPECT_TRUE(result.changed);
  EXPECT_EQ(result.text.substr(0, 5), "\u1ea1\u0323");
}

}  // namespace
}  // namespace ballast
