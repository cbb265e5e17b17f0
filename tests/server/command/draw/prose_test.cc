#include "server/command/draw/prose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WrapTextTest, BreaksAtSpaces) {
  EXPECT_THAT(WrapText("ab cd efg", 5), ElementsAre("ab cd", "efg"));
  EXPECT_THAT(WrapText("abcdefg h", 3), ElementsAre("abcdefg", "h"));
  EXPECT_THAT(WrapText("", 3), IsEmpty());
}

TEST(MakeStatementTest, TheSentenceContainsTheAnswer) {
  Random random(3, 0);
  for (int i = 0; i < 200; ++i) {
    const Statement statement = MakeStatement(&random, /*foreign=*/i % 2 == 0);
    // The answer is "Seven.", the sentence has "seven".
    std::string number = absl::AsciiStrToLower(statement.question.answer);
    number.pop_back();
    EXPECT_THAT(statement.sentence, HasSubstr(" " + number + " "));
    if (i % 2 == 1) {
      for (const char c : statement.sentence)
        EXPECT_TRUE(absl::ascii_isprint(c));
    }
  }
}

}  // namespace
}  // namespace ballast
