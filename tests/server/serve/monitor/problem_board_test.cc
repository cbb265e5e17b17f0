#include "server/serve/monitor/problem_board.h"

#include <gtest/gtest.h>

#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

TEST(ProblemBoardTest, AProblemLastsUntilItsCauseIsGone) {
  ManualClock clock;
  ProblemBoard board(&clock);
  board.Set("reload", "a.yaml", "bad key");
  clock.Advance(absl::Seconds(3));
  board.Set("reload", "a.yaml", "another bad key");
  board.Set("not_serving", "", "drains");
  Problems problems = board.List();
  ASSERT_EQ(problems.size(), 2u);
  SortProblems(64, &problems);
  EXPECT_EQ(problems[0].kind(), "not_serving");
  EXPECT_EQ(problems[1].subject(), "a.yaml");
  EXPECT_EQ(problems[1].text(), "another bad key");
  EXPECT_EQ(problems[1].seconds(), 3);
  board.Set("reload", "a.yaml", "");
  board.Set("certificate", "", "");
  problems = board.List();
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text(), "drains");
  SortProblems(0, &problems);
  EXPECT_TRUE(problems.empty());
}

}  // namespace
}  // namespace ballast
