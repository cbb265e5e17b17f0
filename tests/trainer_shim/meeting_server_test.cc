#include "trainer_shim/communicator.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_loader_client.h"

namespace ballast {
namespace {

// Number of the server chosen of those that serve, or do not.
size_t Chosen(const std::vector<bool>& serve) {
  std::vector<std::unique_ptr<LoaderClient>> servers;
  for (const bool serves : serve) {
    FakeLoader loader;
    if (!serves) loader.health = absl::UnavailableError("away");
    servers.push_back(FakeLoaderClient(loader));
  }
  const LoaderClient* const chosen = MeetingServer(servers);
  size_t number = 0;
  while (servers[number].get() != chosen) ++number;
  return number;
}

TEST(MeetingServerTest, IsTheFirstThatServes) {
  EXPECT_EQ(Chosen({true, true}), 0);
  EXPECT_EQ(Chosen({false, true}), 1);
  EXPECT_EQ(Chosen({false, false, true}), 2);
}

TEST(MeetingServerTest, IsTheFirstWhereNoneServes) {
  EXPECT_EQ(Chosen({false}), 0);
  EXPECT_EQ(Chosen({false, false}), 0);
}

}  // namespace
}  // namespace ballast
