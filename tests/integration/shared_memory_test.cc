// Real servers, files and ranks: the bytes are the same by every transport, and
// nothing is left behind.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "client/loader_client.h"
#include "common/channel_security.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/fakes/test_job.h"

namespace ballast {
namespace {

constexpr uint64_t kSteps = 2;

LoadedConfig MakeConfig(const std::string& delivery, const std::string& arena) {
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
      auto cluster =
          TestCluster::Start(MakeConfig(delivery, i == 0 ? "off" : arenas_), 2);
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
  const auto cluster = TestCluster::Start(MakeConfig("exchange", arenas_));
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
  const auto cluster = TestCluster::Start(MakeConfig("exchange", "off"));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto blocks = Pull((*cluster)->addresses()[0], v1::MODULE_VISION, true);
  ASSERT_EQ(blocks.size(), 2 * kSteps);
  EXPECT_FALSE(blocks[0]->region()->read_only());
}

TEST_F(SharedMemoryDeliveryTest, BlocksOutliveTheServerAndItsFile) {
  const auto cluster = TestCluster::Start(MakeConfig("exchange", arenas_));
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
