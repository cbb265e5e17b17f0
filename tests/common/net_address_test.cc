#include "common/net_address.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(ParseNetAddressTest, ReadsUnixSockets) {
  const NetAddress address = ParseNetAddress("unix:/run/a.sock").value();
  EXPECT_TRUE(address.is_unix());
  EXPECT_EQ(address.path, "/run/a.sock");
  EXPECT_TRUE(address.IsLocal());
  EXPECT_EQ(ParseNetAddress("unix:///run/a.sock").value().path, "/run/a.sock");
  EXPECT_EQ(ParseNetAddress("unix:a.sock").value().path, "a.sock");
  // 107 bytes and a zero byte fill the kernel's field.
  EXPECT_TRUE(ParseNetAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_FALSE(ParseNetAddress("unix:/" + std::string(107, 'a')).ok());
}

TEST(ParseNetAddressTest, ReadsHostsAndPorts) {
  const NetAddress v4 = ParseNetAddress("10.0.0.1:7070").value();
  EXPECT_FALSE(v4.is_unix());
  EXPECT_EQ(v4.host, "10.0.0.1");
  EXPECT_EQ(v4.port, 7070);
  const NetAddress v6 = ParseNetAddress("[fe80::1]:0").value();
  EXPECT_EQ(v6.host, "fe80::1");
  EXPECT_EQ(v6.port, 0);
  EXPECT_EQ(ParseNetAddress("[fe80::1%eth0]:1").value().host, "fe80::1%eth0");
  EXPECT_EQ(ParseNetAddress("node-a.rack_1:65535").value().port, 65535);
}

TEST(ParseNetAddressTest, ErrorsNameTheFormWanted) {
  const struct {
    const char* text;
    const char* wanted;
  } cases[] = {
      {"", "wanted unix:/path or host:port"},
      {"node", "wanted unix:/path or host:port"},
      {":7070", "where host is a name"},
      {"unix:", "a path of 1 to 107 bytes"},
      {"node:", "a port of at most 65535"},
      {"node:65536", "a port of at most 65535"},
      {"node:+1", "a port of at most 65535"},
      {"node: 1", "a port of at most 65535"},
      {"node:http", "a port of at most 65535"},
      {"fe80::1:80", "an IPv6 address in brackets"},
      {"[127.0.0.1]:80", "an IPv6 address within the brackets"},
      {"http://a:80", "where host is a name"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseNetAddress(c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.wanted)) << c.text;
  }
}

TEST(NetAddressTest, KnowsWhetherOtherMachinesReachIt) {
  for (const char* local : {"127.0.0.1:1", "127.255.0.3:1", "localhost:1",
                            "LocalHost:1", "[::1]:1"}) {
    EXPECT_TRUE(ParseNetAddress(local).value().IsLocal()) << local;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "node:1",
                           "127.0.0.1.example:1", "localhost.example:1"}) {
    EXPECT_FALSE(ParseNetAddress(open).value().IsLocal()) << open;
  }
}

TEST(UnixPathTest, IsEmptyForOtherAddresses) {
  EXPECT_EQ(UnixPath("unix:/run/a.sock"), "/run/a.sock");
  EXPECT_EQ(UnixPath("unix:///run/a.sock"), "/run/a.sock");
  EXPECT_EQ(UnixPath("unix:a.sock"), "a.sock");
  EXPECT_EQ(UnixPath("unix:"), "");
  EXPECT_EQ(UnixPath("127.0.0.1:80"), "");
}

}  // namespace
}  // namespace ballast
