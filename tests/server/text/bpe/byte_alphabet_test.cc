#include "server/text/bpe/byte_alphabet.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ByteAlphabetTest, IsGpt2s) {
  EXPECT_EQ(ToByteAlphabet("Hi there\n"), "Hi\u0120there\u010a");
  EXPECT_EQ(ToByteAlphabet("\u00e9"), "\u00c3\u00a9");
  EXPECT_EQ(ToByteAlphabet(std::string("\0\x7F\xAD", 3)), "\u0100\u0121\u0143");
}

TEST(ByteAlphabetTest, EveryByteRoundTrips) {
  std::set<std::string> names;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string name = ToByteAlphabet(bytes);
    EXPECT_TRUE(names.insert(name).second) << byte;
    EXPECT_EQ(FromByteAlphabet(name), bytes);
  }
}

TEST(ByteAlphabetTest, OtherTextIsRejected) {
  for (const char* text : {" ", "\n", "a b", "\u0144", "\u20ac", "\xC4",
                           "\xC4(", "\xFF", "\u00ad"}) {
    EXPECT_EQ(FromByteAlphabet(text), std::nullopt) << text;
  }
  EXPECT_EQ(FromByteAlphabet(""), "");
}

}  // namespace
}  // namespace ballast
