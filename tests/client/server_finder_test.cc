#include "client/server_finder.h"

#include <gtest/gtest.h>

#include <map>

namespace ballast {
namespace {

using Names = std::vector<std::string>;

// Clients that connect to nothing.
std::unique_ptr<LoaderClient> ClientOf(const std::string& address) {
  return LoaderClient::Create(address);
}

TEST(ServerFinderTest, ANameIsAServerAtEachAddressAndKeepsItsNumber) {
  std::map<std::string, Names> hosts = {{"loaders", {"10.0.0.1", "10.0.0.2"}}};
  const auto client = ClientOf("loaders:7070");
  ServerFinder finder({client.get()},
                      [&](const std::string& host) { return hosts[host]; });
  EXPECT_EQ(finder.names(),
            (Names{"server 10.0.0.1:7070", "server 10.0.0.2:7070"}));
  // One goes, two come; an address of version 6 gets brackets.
  hosts["loaders"] = {"10.0.0.2", "10.0.0.3", "fd00::4"};
  finder.Look();
  EXPECT_EQ(finder.names(),
            (Names{"server 10.0.0.1:7070", "server 10.0.0.2:7070",
                   "server 10.0.0.3:7070", "server [fd00::4]:7070"}));
  finder.Look();
  EXPECT_EQ(finder.size(), 4u);
}

TEST(ServerFinderTest, AddressesInDigitsAndSocketsAreNotResolved) {
  const auto first = ClientOf("unix:/run/a.sock");
  const auto second = ClientOf("10.0.0.9:7070");
  const auto third = ClientOf("localhost:7070");
  ServerFinder finder({first.get(), second.get(), third.get()},
                      [](const std::string& host) {
                        ADD_FAILURE() << host;
                        return Names();
                      });
  EXPECT_EQ(finder.client(0), first.get());
  EXPECT_EQ(finder.client(1), second.get());
  EXPECT_EQ(finder.client(2), third.get());
}

TEST(ServerFinderTest, ANameWithoutAnAddressStandsForItself) {
  const auto client = ClientOf("loaders:7070");
  ServerFinder finder({client.get()},
                      [](const std::string&) { return Names(); });
  EXPECT_EQ(finder.names(), Names{"server loaders:7070"});
}

TEST(ServerFinderTest, TheSystemResolvesLocalhost) {
  const Names addresses = ResolveBySystem("localhost");
  ASSERT_FALSE(addresses.empty());
  for (const std::string& address : addresses) {
    EXPECT_TRUE(address == "127.0.0.1" || address == "::1") << address;
  }
  EXPECT_TRUE(ResolveBySystem("no-such-host.invalid").empty());
}

}  // namespace
}  // namespace ballast
