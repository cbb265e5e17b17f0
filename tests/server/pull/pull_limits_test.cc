#include "server/pull/pull_limits.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void Ignore(const absl::Status&) {}

TEST(PullLimitsTest, BoundsPullsInAllAndPerClient) {
  PullLimits limits({.most = 3, .most_a_client = 2});
  const auto first = limits.Begin("a", Ignore);
  EXPECT_TRUE(first.ok());
  EXPECT_TRUE(limits.Begin("a", Ignore).ok());
  const absl::Status third = limits.Begin("a", Ignore).status();
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(third.message()),
      HasSubstr("a has 2 Pulls open, and serve.max_streams_per_client"));
  EXPECT_TRUE(limits.Begin("b", Ignore).ok());
  const absl::Status fourth = limits.Begin("c", Ignore).status();
  EXPECT_EQ(fourth.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fourth.message()),
              HasSubstr("3 Pulls are open, and serve.max_streams is 3"));
  limits.End("a", *first);
  const auto of_c = limits.Begin("c", Ignore);
  EXPECT_TRUE(of_c.ok());
  EXPECT_FALSE(limits.Begin("a", Ignore).ok());
  limits.End("c", *of_c);
  EXPECT_TRUE(limits.Begin("a", Ignore).ok());
}

TEST(PullLimitsTest, SilentPullsGiveWayInTheOrderOfTheirStart) {
  PullLimits limits({.most_silent = 2});
  std::vector<uint64_t> pulls;
  std::vector<size_t> ended;
  const auto begin = [&] {
    const size_t number = pulls.size();
    pulls.push_back(
        *limits.Begin("a", [&ended, number](const absl::Status& why) {
          EXPECT_EQ(why.code(), absl::StatusCode::kAborted);
          ended.push_back(number);
        }));
  };
  for (int i = 0; i < 2; ++i) begin();
  limits.Spoke(pulls[0]);
  begin();
  EXPECT_THAT(ended, IsEmpty());
  begin();
  EXPECT_THAT(ended, ElementsAre(1));
  limits.End("a", pulls[1]);
  limits.End("a", pulls[2]);
  begin();
  EXPECT_THAT(ended, ElementsAre(1));
  begin();
  EXPECT_THAT(ended, ElementsAre(1, 3));
}

TEST(PullLimitsTest, CountsClientsByAddress) {
  EXPECT_EQ(GetClient("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(GetClient("ipv6:%5B::1%5D:4711"), "ipv6:%5B::1%5D");
  EXPECT_EQ(GetClient("unix:/run/a.sock"), "unix");
  EXPECT_EQ(GetClient("unix:"), "unix");
  EXPECT_EQ(GetClient("?"), "?");
}

}  // namespace
}  // namespace ballast
