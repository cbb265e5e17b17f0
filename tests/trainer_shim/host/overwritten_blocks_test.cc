// Blocks in shared memory that the server has overwritten after Next answered
// them: the rank says so, whatever the memory then holds.

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/types/span.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// The second micro-batch of the only step is damaged, or overwritten, or both.
absl::Status GetEnd(v1::Module module, bool damaged, bool overwritten) {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  loader.on_block = [=](uint64_t, uint32_t micro_batch,
                        absl::Span<uint8_t> bytes) {
    if (damaged && micro_batch == 1) {
      std::fill(bytes.begin(), bytes.end(), uint8_t{0x5A});
    }
  };
  loader.stays_intact = [=](uint64_t, uint32_t micro_batch) {
    return !(overwritten && micro_batch == 1);
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  TrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = 1;
  auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  if (!shim.ok()) return shim.status();
  const auto first = (*shim)->Next();
  EXPECT_TRUE(first.ok()) << first.status();
  const absl::Status second = (*shim)->Next().status();
  return second.ok() ? (*shim)->Next().status() : second;
}

// The end of a rank of two steps whose second micro-batch is overwritten the
// first `times` times that it is fetched; `batches` came before.
absl::Status EndAfter(v1::Module module, v1::Delivery delivery, int times,
                      int* batches) {
  FakeLoader loader;
  loader.job.delivery = delivery;
  auto fetches = std::make_shared<std::atomic<int>>(0);
  loader.before_fetch = [=](const v1::Role&, uint64_t step,
                            uint32_t micro_batch) {
    *fetches += step == 0 && micro_batch == 1;
    return absl::OkStatus();
  };
  loader.stays_intact = [=](uint64_t step, uint32_t micro_batch) {
    return step != 0 || micro_batch != 1 || *fetches > times;
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  TrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = 2;
  auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  if (!shim.ok()) return shim.status();
  while (true) {
    const auto batch = (*shim)->Next();
    if (!batch.ok()) return batch.status();
    EXPECT_EQ(2 * (*batch)->step + (*batch)->micro_batch,
              static_cast<uint64_t>((*batches)++));
  }
}

class OverwrittenBlocksTest : public ::testing::TestWithParam<v1::Module> {};

TEST_P(OverwrittenBlocksTest, AreNamedWhetherOrNotTheyStillParse) {
  for (const bool damaged : {false, true}) {
    const absl::Status end = GetEnd(GetParam(), damaged, /*overwritten=*/true);
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
    EXPECT_THAT(end.message(),
                HasSubstr("step 0 micro-batch 1 was overwritten"));
  }
}

TEST_P(OverwrittenBlocksTest, ADamagedBlockThatWasNotSaysWhatIsWrongInIt) {
  const absl::Status end =
      GetEnd(GetParam(), /*damaged=*/true, /*overwritten=*/false);
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument) << end;
}

TEST_P(OverwrittenBlocksTest, WholeBlocksReachTheEnd) {
  const absl::Status end =
      GetEnd(GetParam(), /*damaged=*/false, /*overwritten=*/false);
  EXPECT_EQ(end.code(), absl::StatusCode::kOutOfRange) << end;
}

// A rank that was stopped while it read a block goes on with the same block.
TEST_P(OverwrittenBlocksTest, ArePulledAgainIfNothingIsExchanged) {
  for (const v1::Delivery delivery : {v1::DELIVERY_DIRECT, v1::DELIVERY_OFF}) {
    int batches = 0;
    const absl::Status end = EndAfter(GetParam(), delivery, 3, &batches);
    EXPECT_EQ(end.code(), absl::StatusCode::kOutOfRange) << end;
    EXPECT_EQ(batches, 4);
  }
}

TEST_P(OverwrittenBlocksTest, EndTheRankIfTheyAlwaysAre) {
  int batches = 0;
  const absl::Status end =
      EndAfter(GetParam(), v1::DELIVERY_DIRECT, 1000, &batches);
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_EQ(batches, 1);
}

// Rank 1's second block is overwritten while the ranks exchange. Rank 0 cannot
// tell, so it must get none of it.
TEST_P(OverwrittenBlocksTest, NeverReachPeers) {
  auto ends = InProcessGroup(2);
  std::vector<int> batches(2, 0);
  std::vector<absl::Status> statuses(2);
  const auto run = [&](uint32_t rank) {
    FakeLoader loader;
    loader.stays_intact = [=](uint64_t, uint32_t micro_batch) {
      return rank == 0 || micro_batch == 0;
    };
    std::vector<std::unique_ptr<LoaderClient>> clients;
    clients.push_back(FakeLoaderClient(std::move(loader)));
    TrainerShim::Options options;
    options.source.role = RoleOf(GetParam(), rank);
    options.source.steps = 1;
    options.communicator = std::move(ends[rank]);
    auto shim = TrainerShim::Create(std::move(options), std::move(clients));
    ASSERT_TRUE(shim.ok()) << shim.status();
    while (statuses[rank].ok()) {
      statuses[rank] = (*shim)->Next().status();
      batches[rank] += statuses[rank].ok();
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(batches, std::vector<int>({1, 1}));
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, OverwrittenBlocksTest,
                         ::testing::Values(v1::MODULE_VISION,
                                           v1::MODULE_LANGUAGE));

}  // namespace
}  // namespace ballast
