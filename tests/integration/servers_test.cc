// Several servers of one job: equal batches, refusals, restarts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/attach_all.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
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
  // Nor can one whose first server answers, unless it knows its job: then it
  // starts without the server that differs.
  EXPECT_EQ(AttachAll(clients, {}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const v1::Fingerprint job = first->Attach({}, {})->fingerprint();
  const auto started = AttachAll(clients, {}, job);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(started->fingerprint().hash(), job.hash());
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

// Real servers, files and ranks: the bytes are the same by every transport, and
// nothing is left behind.

constexpr uint64_t kSteps = 2;

LoadedConfig MakeSharedConfig(const std::string& delivery,
                              const std::string& arena) {
  TestJob job = GridJob(4, 2, delivery);
  job.serve = absl::StrCat(", arena: '", arena, "'");
  return ParseJob(job, FormulaFolder("formula", 50));
}

class SharedMemoryDeliveryTest : public ::testing::Test {
 protected:
  SharedMemoryDeliveryTest() {
    std::filesystem::remove_all(arenas_);
    std::filesystem::create_directories(arenas_);
  }
  int Arenas() const {
    return std::distance(std::filesystem::directory_iterator(arenas_), {});
  }

  // Pulls a role's blocks by a separate stream.
  std::vector<std::unique_ptr<FetchedBlock>> Pull(const std::string& address,
                                                  v1::Module module,
                                                  bool accept,
                                                  uint32_t streams = 1) {
    const auto client =
        LoaderClient::CreateSecure(address, ChannelSecurity(), streams);
    FetchRequest request;
    request.role.set_module(module);
    request.role.set_dp_rank(1);
    request.steps = kSteps;
    request.fingerprint = client->Attach({}, {})->fingerprint().hash();
    request.accept_shared_memory = accept;
    request.verify_shared_memory = true;
    const auto fetcher = client->OpenPull(request);
    std::vector<std::unique_ptr<FetchedBlock>> blocks;
    while (true) {
      auto block = (*fetcher)->Fetch();
      if (!block.ok()) {
        EXPECT_TRUE(absl::IsOutOfRange(block.status())) << block.status();
        return blocks;
      }
      blocks.push_back(*std::move(block));
    }
  }

  const std::string arenas_ = ::testing::TempDir() + "/arenas";
};

TEST_F(SharedMemoryDeliveryTest, PacksTheSameBytesAsTheStream) {
  for (const std::string delivery : {"exchange", "direct", "off"}) {
    TestCluster::Batches batches[2];
    for (int i = 0; i < 2; ++i) {
      auto cluster = TestCluster::Start(
          MakeSharedConfig(delivery, i == 0 ? "off" : arenas_), 2);
      ASSERT_TRUE(cluster.ok()) << cluster.status();
      EXPECT_EQ(Arenas(), i == 0 ? 0 : 2);
      auto got = (*cluster)->RunRanks(0, kSteps);
      ASSERT_TRUE(got.ok()) << got.status();
      batches[i] = *std::move(got);
    }
    EXPECT_EQ(batches[0].size(), kSteps * 2 * (4 + 2));
    ASSERT_EQ(batches[0].size(), batches[1].size());
    for (const auto& [key, batch] : batches[0]) {
      EXPECT_EQ(ComputeDigest(batch), ComputeDigest(batches[1].at(key)));
    }
    EXPECT_EQ(Arenas(), 0);
  }
}

TEST_F(SharedMemoryDeliveryTest, DeliversTheSameBlocksByEveryTransport) {
  const auto cluster =
      TestCluster::Start(MakeSharedConfig("exchange", arenas_));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const auto shared = Pull((*cluster)->addresses()[0], module, true);
    const auto streamed = Pull((*cluster)->addresses()[0], module, false);
    ASSERT_EQ(shared.size(), 2 * kSteps);
    ASSERT_EQ(streamed.size(), shared.size());
    const auto over_three = Pull((*cluster)->addresses()[0], module, false, 3);
    ASSERT_EQ(over_three.size(), shared.size());
    for (size_t i = 0; i < shared.size(); ++i) {
      EXPECT_TRUE(shared[i]->region()->read_only());
      EXPECT_FALSE(streamed[i]->region()->read_only());
      EXPECT_TRUE(
          std::equal(shared[i]->bytes().begin(), shared[i]->bytes().end(),
                     streamed[i]->bytes().begin(), streamed[i]->bytes().end()));
      EXPECT_EQ(over_three[i]->bytes(), streamed[i]->bytes());
    }
  }
}

// An arena replaces the server's own memory; without one, memory stays private.
TEST_F(SharedMemoryDeliveryTest, ServesWithoutAnArena) {
  const auto cluster = TestCluster::Start(MakeSharedConfig("exchange", "off"));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto blocks = Pull((*cluster)->addresses()[0], v1::MODULE_VISION, true);
  ASSERT_EQ(blocks.size(), 2 * kSteps);
  EXPECT_FALSE(blocks[0]->region()->read_only());
}

TEST_F(SharedMemoryDeliveryTest, BlocksOutliveTheServerAndItsFile) {
  const auto cluster =
      TestCluster::Start(MakeSharedConfig("exchange", arenas_));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto blocks = Pull((*cluster)->addresses()[0], v1::MODULE_VISION, true);
  ASSERT_FALSE(blocks.empty());
  std::vector<uint64_t> before;
  for (const auto& block : blocks) {
    before.push_back(XXH3_64bits(block->bytes().data(), block->bytes().size()));
  }
  (*cluster)->Kill(0);
  EXPECT_EQ(Arenas(), 0);
  ASSERT_TRUE((*cluster)->Restart(0).ok());
  EXPECT_EQ(Arenas(), 1);
  // The new server's blocks are in its own arena.
  const auto again = Pull((*cluster)->addresses()[0], v1::MODULE_VISION, true);
  ASSERT_EQ(again.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(blocks[i]->intact());
    EXPECT_EQ(XXH3_64bits(blocks[i]->bytes().data(), blocks[i]->bytes().size()),
              before[i]);
    EXPECT_NE(again[i]->region(), blocks[i]->region());
  }
}

}  // namespace
}  // namespace ballast
