#include "server/command/termination.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using Act = SignalRule::Act;
using Phase = SignalRule::Phase;

constexpr absl::Duration kPromised = absl::Seconds(10);
const absl::Time kStart = absl::UnixEpoch();

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

TEST(SignalRuleTest, AServerThatStartsEndsAtOnce) {
  SignalRule rule(kPromised);
  EXPECT_EQ(rule.deadline(), absl::InfiniteFuture());
  EXPECT_EQ(rule.OnSignal(SIGHUP, At(0)), Act::kReload);
  EXPECT_EQ(rule.OnSignal(SIGINT, At(1)), Act::kEnd);
  EXPECT_EQ(rule.exit_status(), 130);
  EXPECT_EQ(rule.reason(), "SIGINT while starting: ends at once");
}

TEST(SignalRuleTest, SignalsWithinATenthOfASecondAreOne) {
  SignalRule rule(kPromised);
  rule.SetPhase(Phase::kServing);
  EXPECT_EQ(rule.OnSignal(SIGTERM, At(5)), Act::kNone);
  EXPECT_EQ(rule.deadline(), At(5.1));
  EXPECT_EQ(rule.OnSignal(SIGTERM, At(5.05)), Act::kNone);
  EXPECT_EQ(rule.OnTime(At(5.05)), Act::kNone);
  EXPECT_EQ(rule.OnTime(At(5.1)), Act::kDrain);
  EXPECT_EQ(rule.signal(), SIGTERM);
  EXPECT_EQ(rule.deadline(), At(15));
  EXPECT_EQ(rule.OnSignal(SIGHUP, At(5.2)), Act::kNone);
}

TEST(SignalRuleTest, ASecondSignalEndsAnyLaterPhase) {
  for (const auto& [phase, name] :
       std::initializer_list<std::pair<Phase, const char*>>{
           {Phase::kServing, "draining"},
           {Phase::kDraining, "draining"},
           {Phase::kClosing, "closing"}}) {
    SignalRule rule(kPromised);
    rule.SetPhase(Phase::kServing);
    rule.OnSignal(SIGTERM, At(0));
    rule.OnTime(At(0.1));
    rule.SetPhase(phase);
    EXPECT_EQ(rule.OnSignal(SIGINT, At(0.1)), Act::kEnd);
    EXPECT_EQ(rule.exit_status(), 130);
    EXPECT_EQ(rule.reason(),
              std::string("SIGINT while ") + name + ": ends at once");
  }
}

TEST(SignalRuleTest, ThePromisedTimeEndsAProcessThatIsBlocked) {
  for (const auto& [phase, status] :
       std::initializer_list<std::pair<Phase, int>>{
           {Phase::kServing, 1}, {Phase::kDraining, 1}, {Phase::kClosing, 0}}) {
    SignalRule rule(kPromised);
    rule.SetPhase(Phase::kServing);
    rule.OnSignal(SIGTERM, At(0));
    EXPECT_EQ(rule.OnTime(At(0.1)), Act::kDrain);
    rule.SetPhase(phase);
    EXPECT_EQ(rule.OnTime(At(9.9)), Act::kNone);
    EXPECT_EQ(rule.OnTime(At(10)), Act::kEnd);
    EXPECT_EQ(rule.exit_status(), status);
    EXPECT_THAT(rule.reason(), HasSubstr("10s after the signal"));
    EXPECT_THAT(rule.reason(), HasSubstr("blocked"));
  }
}

}  // namespace
}  // namespace ballast
