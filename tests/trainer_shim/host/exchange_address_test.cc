#include "trainer_shim/host/gloo_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(ExchangeAddressTest, StaysOnThisMachineWhereItsServersDo) {
  for (const char* server :
       {"unix:/run/a.sock", "127.0.0.1:7070", "localhost:7070", "[::1]:7070"}) {
    EXPECT_EQ(*ExchangeAddress({server}, ""), "127.0.0.1");
  }
}

TEST(ExchangeAddressTest, InterfacesGoByNameOrAddress) {
  EXPECT_EQ(*ExchangeAddress({"10.0.0.1:7070"}, "lo"), "127.0.0.1");
  EXPECT_EQ(*ExchangeAddress({}, "127.0.0.1"), "127.0.0.1");
}

TEST(ExchangeAddressTest, WhatThisMachineLacksIsNamed) {
  for (const char* interface : {"no-such0", "192.0.2.1"}) {
    const auto address = ExchangeAddress({}, interface);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr(interface));
  }
  // .invalid never resolves.
  const auto unknown = ExchangeAddress({"unix:/a", "host.invalid:7070"}, "");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(unknown.status().message(), HasSubstr("host.invalid"));
}

}  // namespace
}  // namespace ballast
