#include "client/server_channel.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckServerAddressTest, AcceptsAddressesOfServers) {
  for (const std::string address :
       {"unix:/run/ballast/a.sock", "unix:a.sock", "node7:7070",
        "127.0.0.1:65535", "[::1]:7070"}) {
    EXPECT_TRUE(CheckServerAddress(address).ok()) << address;
  }
  EXPECT_TRUE(CheckServerAddress("unix:/" + std::string(106, 'a')).ok());
}

TEST(CheckServerAddressTest, ErrorsNameTheAddressAndTheFormWanted) {
  const std::string long_path = "unix:/" + std::string(107, 'a');
  const struct {
    std::string address, message;
  } cases[] = {
      {"", "wanted unix:/path or host:port"},
      {"node7", "wanted unix:/path or host:port"},
      {":7070", "where host is a name"},
      {"unix:", "a path of 1 to 107 bytes"},
      {long_path, "a path of 1 to 107 bytes"},
      {"node7:", "a port of at most 65535"},
      {"node7:0", "a port of 1 to 65535"},
      {"node7:65536", "a port of at most 65535"},
      {"node7:http", "a port of at most 65535"},
      {"::1:7070", "an IPv6 address in brackets"},
  };
  for (const auto& c : cases) {
    const absl::Status status = CheckServerAddress(c.address);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("\"" + c.address + "\""), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace ballast
