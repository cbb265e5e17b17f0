#include "server/config/listen_address.h"

#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ParseListenAddress, ReadsUnixSockets) {
  const ListenAddress address = ParseListenAddress("unix:/run/a.sock").value();
  EXPECT_TRUE(address.is_unix);
  EXPECT_EQ(address.path, "/run/a.sock");
  EXPECT_TRUE(address.IsLocal());
  // 107 bytes and a NUL fill the kernel's field.
  EXPECT_TRUE(ParseListenAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_FALSE(ParseListenAddress("unix:/" + std::string(107, 'a')).ok());
}

TEST(ParseListenAddress, ReadsHostsAndPorts) {
  const ListenAddress v4 = ParseListenAddress("10.0.0.1:7070").value();
  EXPECT_FALSE(v4.is_unix);
  EXPECT_EQ(v4.host, "10.0.0.1");
  EXPECT_EQ(v4.port, 7070);
  const ListenAddress v6 = ParseListenAddress("[fe80::1]:0").value();
  EXPECT_EQ(v6.host, "fe80::1");
  EXPECT_EQ(v6.port, 0);
  EXPECT_EQ(ParseListenAddress("node-a.rack_1:65535").value().port, 65535);
}

TEST(ListenAddress, KnowsWhatOtherMachinesReach) {
  for (const char* local : {"127.0.0.1:1", "127.255.0.3:1", "localhost:1",
                            "LocalHost:1", "[::1]:1"}) {
    EXPECT_TRUE(ParseListenAddress(local).value().IsLocal()) << local;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "node:1",
                           "127.0.0.1.example:1", "localhost.example:1"}) {
    EXPECT_FALSE(ParseListenAddress(open).value().IsLocal()) << open;
  }
}

}  // namespace
}  // namespace ballast
