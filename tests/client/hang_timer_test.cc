#include "client/hang_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kSilent = absl::Seconds(10);
constexpr absl::Duration kSlow = absl::Seconds(30);

absl::Time At(int seconds) {
  return absl::UnixEpoch() + absl::Seconds(seconds);
}

class HangTimerTest : public ::testing::Test {
 protected:
  HangTimerTest() { timer_.Start(At(0)); }
  absl::Status Check(int seconds, uint64_t bytes, bool may_send = true) {
    return timer_.Check(At(seconds), {bytes, may_send});
  }
  HangTimer timer_{kSilent, kSlow};
};

TEST_F(HangTimerTest, ASilentServerHangs) {
  EXPECT_TRUE(Check(9, 0).ok());
  const absl::Status hung = Check(10, 0);
  EXPECT_EQ(hung.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(hung.message(), HasSubstr("no byte for 10s (after 0 bytes"));
}

TEST_F(HangTimerTest, BytesAreASignOfLife) {
  EXPECT_TRUE(Check(9, 5).ok());
  EXPECT_TRUE(Check(18, 5).ok());
  EXPECT_TRUE(Check(18, 6).ok());
  EXPECT_TRUE(Check(27, 6).ok());
  EXPECT_THAT(Check(28, 6).message(), HasSubstr("no byte for 10s (after 6"));
}

TEST_F(HangTimerTest, AServerThatTricklesIsTooSlow) {
  for (int second = 1; second < 30; ++second) {
    EXPECT_TRUE(Check(second, second).ok()) << second;
  }
  const absl::Status slow = Check(30, 30);
  EXPECT_EQ(slow.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(slow.message(), HasSubstr("30 bytes of the block"));
}

// The client holds its whole allowance: the server waits for the client.
TEST_F(HangTimerTest, AServerWithoutCreditDoesNotHang) {
  EXPECT_TRUE(Check(1000, 0, false).ok());
  EXPECT_TRUE(Check(1009, 0).ok());
  EXPECT_FALSE(Check(1010, 0).ok());
}

TEST_F(HangTimerTest, EveryBlockRestartsTheTimer) {
  EXPECT_TRUE(Check(9, 100).ok());
  timer_.Start(At(20));
  EXPECT_TRUE(Check(29, 0).ok());
  EXPECT_FALSE(Check(30, 0).ok());
}

}  // namespace
}  // namespace ballast
