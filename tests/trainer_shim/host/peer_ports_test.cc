#include "trainer_shim/host/gloo_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(PeerPortsTest, ComeBackAsTheyWere) {
  for (const char* ip : {"127.0.0.1", "10.1.2.3", "fd00::12"}) {
    PeerPorts ports;
    ports.run = 0x1122334455667788;
    ports.ip = ip;
    ports.ports = {0, 1, 443, 65535};
    const auto bytes = ports.Encode();
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    const auto back = PeerPorts::Decode(*bytes, 4);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->run, ports.run);
    EXPECT_EQ(back->ip, ip);
    EXPECT_EQ(back->ports, ports.ports);
  }
}

TEST(PeerPortsTest, FitIntoARendezvous) {
  PeerPorts ports;
  ports.ip = "fd00:1234:5678:9abc:def0:1234:5678:9abc";
  ports.ports.resize(PeerPorts::kMaxRanks);
  EXPECT_LE(ports.Encode()->size(), 4096);
  ports.ports.resize(PeerPorts::kMaxRanks + 1);
  EXPECT_EQ(ports.Encode().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PeerPortsTest, OtherBytesAreRefused) {
  PeerPorts ports;
  ports.ip = "127.0.0.1";
  ports.ports = {0, 1};
  const std::string good = *ports.Encode();
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(PeerPorts::Decode(good.substr(0, bytes), 2).ok()) << bytes;
  }
  EXPECT_FALSE(PeerPorts::Decode(good + "x", 2).ok());
  EXPECT_FALSE(PeerPorts::Decode(good, 3).ok());
  EXPECT_FALSE(PeerPorts::Decode("X" + good.substr(1), 2).ok());
  std::string no_address = good;
  no_address[13] = 'x';  // in the IP address
  EXPECT_EQ(PeerPorts::Decode(no_address, 2).status().code(),
            absl::StatusCode::kDataLoss);
  ports.ip = "localhost";
  EXPECT_EQ(ports.Encode().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
