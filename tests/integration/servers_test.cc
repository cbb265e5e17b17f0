// Several servers of one job: equal batches, refusals, restarts.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/attach_all.h"
#include "client/loader_client.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

LoadedConfig MakeConfig(uint32_t vision_dp, uint32_t language_dp,
                        const std::string& delivery,
                        const std::string& more = "") {
  TestJob job = GridJob(vision_dp, language_dp, delivery);
  job.more = more;
  return ParseJob(job, FormulaFolder("formula", 50));
}

TEST(ServersTest, SeveralServersGiveTheSameBatchesAsOne) {
  const LoadedConfig config = MakeConfig(4, 4, "off");
  const auto one = RunJob(config, 3, 1);
  const auto two = RunJob(config, 3, 2);
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [key, batch] : one) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(two.at(key)));
  }
}

// A rank whose first server is away cannot tell which of the others is right:
// the error names both fingerprints and the first differing key.
TEST(ServersTest, RefusesDifferentConfigurations) {
  const auto a = TestCluster::Start(MakeConfig(2, 2, "exchange"));
  const auto b =
      TestCluster::Start(MakeConfig(2, 2, "exchange", "order: {seed: 99}\n"));
  ASSERT_TRUE(a.ok() && b.ok());
  const auto away = LoaderClient::Create((*a)->addresses()[0] + ".away");
  const auto first = LoaderClient::Create((*a)->addresses()[0]);
  const auto second = LoaderClient::Create((*b)->addresses()[0]);
  LoaderClient* clients[] = {first.get(), second.get()};
  LoaderClient* all[] = {away.get(), first.get(), second.get()};
  const auto attached = AttachAll(all, {}, {});
  ASSERT_EQ(attached.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(attached.status().message());
  EXPECT_THAT(message, HasSubstr("order.seed is 1234"));
  EXPECT_THAT(message, HasSubstr("99"));
  for (LoaderClient* client : clients) {
    EXPECT_THAT(message,
                HasSubstr(client->Attach({}, {})->fingerprint().hash()));
    EXPECT_THAT(message, HasSubstr(client->address()));
  }
  // A rank whose first server answers starts without the servers that differ.
  const auto started = AttachAll(clients, {}, {});
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->fingerprint().hash(),
            first->Attach({}, {})->fingerprint().hash());
}

// Rank 1 has server 0 in its list, where rank 0 pulls, and is told at its
// start.
TEST(ServersTest, RanksThatAskForDifferentDeliveriesAreToldAtAttach) {
  const auto cluster = TestCluster::Start(MakeConfig(2, 2, "exchange"), 2);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto a = LoaderClient::Create((*cluster)->addresses()[0]);
  const auto b = LoaderClient::Create((*cluster)->addresses()[1]);
  FetchRequest request;
  request.role.set_module(v1::MODULE_LANGUAGE);
  request.fingerprint = a->Attach({}, {})->fingerprint().hash();
  const auto pull = a->OpenPull(request);
  ASSERT_TRUE(pull.ok() && (*pull)->Fetch().ok());

  v1::Role other = request.role;
  other.set_dp_rank(1);
  LoaderClient* clients[] = {b.get(), a.get()};
  EXPECT_TRUE(AttachAll(clients, other, {}).ok());
  other.set_delivery(v1::DELIVERY_DIRECT);
  const absl::Status status = AttachAll(clients, other, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("language rank 1 has no communicator"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(a->address()));
  // Another module's ranks may ask otherwise.
  other.set_module(v1::MODULE_VISION);
  EXPECT_TRUE(AttachAll(clients, other, {}).ok());
}

TEST(ServersTest, ARestartedServerContinues) {
  auto cluster = TestCluster::Start(MakeConfig(2, 2, "exchange"));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto before = (*cluster)->RunRanks(5, 2);
  ASSERT_TRUE(before.ok()) << before.status();
  (*cluster)->Kill(0);
  ASSERT_TRUE((*cluster)->Restart(0).ok());
  const auto after = (*cluster)->RunRanks(5, 2);
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_EQ(before->size(), after->size());
  for (const auto& [key, batch] : *before) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(after->at(key)));
  }
}

}  // namespace
}  // namespace ballast
