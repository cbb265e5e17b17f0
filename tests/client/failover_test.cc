#include "client/failover.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

FailoverOptions Exact() {
  FailoverOptions options;
  options.jitter = 0;
  options.first_backoff = absl::Seconds(1);
  options.max_backoff = absl::Seconds(4);
  options.patience = absl::Seconds(100);
  return options;
}

// Three servers, and a clock that the test moves.
class FailoverTest : public ::testing::Test {
 protected:
  // Makes server() fail; returns the wait before the next, in seconds.
  double Fail(const absl::Status& why = absl::UnavailableError("died")) {
    const auto wait = failover_.OnFailure(now_, why);
    EXPECT_TRUE(wait.ok()) << wait.status();
    return wait.ok() ? absl::ToDoubleSeconds(*wait) : -1;
  }
  void Pass(double seconds) { now_ += absl::Seconds(seconds); }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  Failover failover_{{"a", "b", "c"}, Exact()};
};

// Servers and ranks may start in any order.
TEST(FailoverOptionsTest, ByDefaultARankWaitsAMinuteForItsFirstServer) {
  EXPECT_EQ(FailoverOptions().start_patience, absl::Seconds(60));
}

TEST_F(FailoverTest, TheNextServerIsAskedAtOnce) {
  EXPECT_EQ(failover_.name(), "a");
  EXPECT_EQ(Fail(), 0);
  EXPECT_EQ(failover_.name(), "b");
  EXPECT_EQ(Fail(), 0);
  EXPECT_EQ(failover_.name(), "c");
}

TEST_F(FailoverTest, WhenAllHaveFailedItWaitsForTheEarliestToBeAskable) {
  Fail();
  Pass(0.25);
  Fail();
  Pass(0.25);
  EXPECT_EQ(Fail(), 0.5);  // a is free a second after it failed
  EXPECT_EQ(failover_.name(), "a");
  Pass(0.5);
  EXPECT_EQ(Fail(), 0.25);  // b; a has to wait for 2 s now
  EXPECT_EQ(failover_.name(), "b");
}

TEST_F(FailoverTest, BackOffDoublesUpToItsBound) {
  Failover alone({"a"}, Exact());
  for (const double wait : {1, 2, 4, 4, 4}) {
    const auto got = alone.OnFailure(now_, absl::UnavailableError("x"));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(absl::ToDoubleSeconds(*got), wait);
  }
  alone.OnProgress();
  EXPECT_EQ(*alone.OnFailure(now_, absl::UnavailableError("x")),
            absl::Seconds(1));
}

// b serves for a long time; when it dies, a's pause is over.
TEST_F(FailoverTest, StaysWithAServerThatServes) {
  Fail();
  failover_.OnProgress();
  Pass(1000);
  failover_.OnProgress();
  EXPECT_EQ(failover_.name(), "b");
  EXPECT_EQ(Fail(), 0);
  EXPECT_EQ(failover_.name(), "c");
  EXPECT_EQ(Fail(), 0);
  EXPECT_EQ(failover_.name(), "a");
}

TEST_F(FailoverTest, JitterIsBoundedSeededAndDiffersByRank) {
  FailoverOptions options = Exact();
  options.jitter = 0.5;
  std::set<absl::Duration> waits;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    options.seed = seed;
    Failover one({"a"}, options), same({"a"}, options);
    const auto wait = one.OnFailure(now_, absl::UnavailableError("x"));
    EXPECT_GT(*wait, absl::Seconds(0.5));
    EXPECT_LE(*wait, absl::Seconds(1));
    EXPECT_EQ(*wait, *same.OnFailure(now_, absl::UnavailableError("x")));
    waits.insert(*wait);
  }
  EXPECT_GT(waits.size(), 95u);
  // About as many in the lower half as in the upper.
  EXPECT_NEAR(
      std::distance(waits.begin(), waits.lower_bound(absl::Seconds(0.75))), 50,
      20);
}

TEST_F(FailoverTest, GivesUpWhenAllAreOutForTooLong) {
  while (now_ < absl::UnixEpoch() + absl::Hours(1) + absl::Seconds(100)) {
    Fail(absl::UnavailableError("refused by " + failover_.name()));
    Pass(1);
  }
  const auto end =
      failover_.OnFailure(now_, absl::UnavailableError("the last"));
  EXPECT_EQ(end.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.status().message()),
              AllOf(HasSubstr("none of the 3 servers can go on, 1m40s after "
                              "the first failure"),
                    HasSubstr("the last")));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_THAT(std::string(end.status().message()),
                HasSubstr(std::string("; ") + name + " (failures in a row: "));
  }
}

// A long pause of the trainer is not a failure, and a failure after it is the
// first.
TEST_F(FailoverTest, PatienceBeginsWithTheFirstFailure) {
  Failover alone({"a"}, Exact());
  Pass(5000);
  EXPECT_TRUE(alone.OnFailure(now_, absl::UnavailableError("x")).ok());
  Pass(99);
  EXPECT_TRUE(alone.OnFailure(now_, absl::UnavailableError("x")).ok());
  alone.OnProgress();
  Pass(5000);
  EXPECT_TRUE(alone.OnFailure(now_, absl::UnavailableError("x")).ok());
  Pass(100);
  EXPECT_FALSE(alone.OnFailure(now_, absl::UnavailableError("x")).ok());
}

TEST_F(FailoverTest, AServerNotYetAskedIsAskedEvenAfterThePatience) {
  Fail();
  Pass(1000);
  EXPECT_EQ(Fail(), 0);
  EXPECT_EQ(failover_.name(), "c");
}

// Asking a server with a damaged file again is useless.
TEST_F(FailoverTest, LastingFaultsOfAllEndItAtOnce) {
  Fail(absl::DataLossError("sample docs:3 of a"));
  Fail(absl::DataLossError("sample docs:3 of b"));
  const auto end =
      failover_.OnFailure(now_, absl::DataLossError("sample docs:3 of c"));
  EXPECT_EQ(end.status().code(), absl::StatusCode::kDataLoss);
  for (const char* cause : {"of a", "of b", "of c"}) {
    EXPECT_THAT(std::string(end.status().message()), HasSubstr(cause));
  }
}

TEST_F(FailoverTest,
       WaitsForAServerThatMayComeBackDespiteLastingFaultsOfOthers) {
  Fail(absl::DataLossError("damaged"));
  Fail(absl::DataLossError("damaged"));
  EXPECT_EQ(Fail(absl::UnavailableError("restarts")), 1);
  EXPECT_EQ(failover_.name(), "a");
}

// A busy server returns RESOURCE_EXHAUSTED.
TEST_F(FailoverTest, ABusyServerIsAskedAgain) {
  const absl::Status busy = absl::ResourceExhaustedError("try again");
  Failover alone({"a"}, Exact());
  for (const double wait : {1, 2, 4, 4}) {
    const auto got = alone.OnFailure(now_, busy);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(absl::ToDoubleSeconds(*got), wait);
  }
  Pass(100);
  EXPECT_EQ(alone.OnFailure(now_, busy).status().code(),
            absl::StatusCode::kUnavailable);
}

// A server of another job listens at a standby's port.
TEST_F(FailoverTest, AServerOfAnotherJobIsSkipped) {
  const absl::Status stranger =
      absl::FailedPreconditionError("fingerprints differ");
  Fail(absl::UnavailableError("restarts"));
  EXPECT_EQ(failover_.name(), "b");
  EXPECT_EQ(Fail(stranger), 0);
  EXPECT_EQ(failover_.name(), "c");
  Failover alone({"a"}, Exact());
  EXPECT_EQ(alone.OnFailure(now_, stranger).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(FailoverTest, ProgressForgetsLastingFaults) {
  Fail(absl::DataLossError("x"));
  Fail(absl::DataLossError("x"));
  failover_.OnProgress();
  EXPECT_EQ(Fail(absl::DataLossError("x")), 0.0 + 1);  // a: first to be free
  EXPECT_EQ(failover_.name(), "a");
}

TEST_F(FailoverTest, FinalFaultsAreReturnedUnchanged) {
  for (const absl::Status& why : {absl::InvalidArgumentError("no such rank"),
                                  absl::CancelledError("cancelled"),
                                  absl::UnauthenticatedError("token")}) {
    EXPECT_EQ(failover_.OnFailure(now_, why).status(), why);
    EXPECT_EQ(failover_.name(), "a");
  }
}

// If no server is fast enough, the limit is too low.
TEST_F(FailoverTest, LimitsDoubleWithEachRoundOfHangs) {
  const absl::Status hang = absl::DeadlineExceededError("no byte");
  EXPECT_EQ(failover_.silent_after(), absl::Seconds(30));
  EXPECT_EQ(failover_.slow_after(), absl::Minutes(2));
  Fail(hang);
  Fail(hang);
  EXPECT_EQ(failover_.silent_after(), absl::Seconds(30));
  Fail(hang);
  EXPECT_EQ(failover_.silent_after(), absl::Seconds(60));
  EXPECT_EQ(failover_.slow_after(), absl::Minutes(4));
  for (int i = 0; i < 1000; ++i) Fail(hang);
  EXPECT_EQ(failover_.silent_after(), 64 * absl::Seconds(30));
  failover_.OnProgress();
  EXPECT_EQ(failover_.silent_after(), absl::Seconds(30));
}

TEST(FailoverOptionsTest, AreChecked) {
  EXPECT_TRUE(CheckFailoverOptions({}).ok());
  FailoverOptions options;
  options.patience = absl::ZeroDuration();
  EXPECT_THAT(std::string(CheckFailoverOptions(options).message()),
              HasSubstr("patience is 0, wanted more than 0"));
  options = {};
  options.jitter = 1.5;
  EXPECT_THAT(std::string(CheckFailoverOptions(options).message()),
              HasSubstr("jitter is 1.5, wanted 0 to 1"));
}

}  // namespace
}  // namespace ballast
