#include "client/server_address.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckServerAddressTest, AcceptsGoodOnes) {
  for (const std::string address :
       {"unix:/run/ballast/a.sock", "unix:a.sock", "node7:7070",
        "127.0.0.1:65535", "[::1]:7070"}) {
    EXPECT_TRUE(CheckServerAddress(address).ok()) << address;
  }
  EXPECT_TRUE(CheckServerAddress("unix:/" + std::string(106, 'a')).ok());
}

TEST(CheckServerAddressTest, NamesTheFault) {
  const std::string long_path = "unix:/" + std::string(107, 'a');
  const struct {
    std::string address, message;
  } cases[] = {
      {"", "is neither unix:/path nor host:port"},
      {"node7", "is neither"},
      {":7070", "is neither"},
      {"unix:", "has a path of 0 bytes"},
      {long_path, "has a path of 108 bytes, wanted 1 to 107"},
      {"node7:", "has port \"\", wanted 1 to 65535"},
      {"node7:0", "has port \"0\""},
      {"node7:65536", "has port \"65536\""},
      {"node7:http", "has port \"http\""},
      {"::1:7070", "wants brackets"},
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
