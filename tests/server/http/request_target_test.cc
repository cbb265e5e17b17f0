#include "server/http/http_server.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(RequestTargetTest, DecodesPathAndQuery) {
  const auto target =
      ParseRequestTarget("/a%20b+c?x=1+2&y=%C3%A9%2B&z&=no&x=3&w=a=b");
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->path, "/a b+c");
  EXPECT_THAT(target->query,
              ElementsAre(Pair("w", "a=b"), Pair("x", "3"),
                          Pair("y", "\xC3\xA9+"), Pair("z", "")));
}

TEST(RequestTargetTest, AQuestionMarkEndsThePathOnce) {
  EXPECT_EQ(ParseRequestTarget("/a%3Fb?c=d?e")->path, "/a?b");
  EXPECT_EQ(ParseRequestTarget("/a?c=d?e")->query.at("c"), "d?e");
  EXPECT_TRUE(ParseRequestTarget("/a?")->query.empty());
}

TEST(RequestTargetTest, RefusesWhatItCannotDecode) {
  for (const char* text :
       {"", "a", "*", "http://h/a", "/%", "/%4", "/%4g", "/%00", "/a%2"}) {
    EXPECT_FALSE(ParseRequestTarget(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseRequestTarget(std::string("/\0", 2)).has_value());
  // A parameter that cannot be decoded leaves the others as they are.
  EXPECT_THAT(ParseRequestTarget("/?a=%zz&b=1")->query,
              ElementsAre(Pair("a", ""), Pair("b", "1")));
}

}  // namespace
}  // namespace ballast
