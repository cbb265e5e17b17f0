#include "server/pull/pull_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(PullLimitsTest, BoundsPullsInAllAndPerClient) {
  PullLimits limits({.most = 3, .most_a_client = 2});
  EXPECT_TRUE(limits.Begin("a").ok());
  EXPECT_TRUE(limits.Begin("a").ok());
  const absl::Status third = limits.Begin("a");
  EXPECT_EQ(third.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(third.message()),
      HasSubstr("a has 2 Pulls open, and serve.max_streams_per_client"));
  EXPECT_TRUE(limits.Begin("b").ok());
  const absl::Status fourth = limits.Begin("c");
  EXPECT_EQ(fourth.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fourth.message()),
              HasSubstr("3 Pulls are open, and serve.max_streams is 3"));
  limits.End("a");
  EXPECT_TRUE(limits.Begin("c").ok());
  EXPECT_FALSE(limits.Begin("a").ok());
  limits.End("c");
  EXPECT_TRUE(limits.Begin("a").ok());
}

TEST(PullLimitsTest, CountsClientsByAddress) {
  EXPECT_EQ(ClientOf("ipv4:10.0.0.1:4711"), "ipv4:10.0.0.1");
  EXPECT_EQ(ClientOf("ipv6:%5B::1%5D:4711"), "ipv6:%5B::1%5D");
  EXPECT_EQ(ClientOf("unix:/run/a.sock"), "unix");
  EXPECT_EQ(ClientOf("unix:"), "unix");
  EXPECT_EQ(ClientOf("?"), "?");
}

}  // namespace
}  // namespace ballast
