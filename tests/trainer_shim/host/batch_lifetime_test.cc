// Held batches: unchanged by Next, named when there are too many, released on
// any thread, valid after their shim.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/malloc_counter.h"
#include "tests/fakes/synthetic_schedule.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Batch = BatchRef<PackedBatch>;

std::unique_ptr<TrainerShim> MakeShim(v1::Module module,
                                      uint32_t max_batches_held,
                                      uint64_t steps = 8, uint32_t pp = 1) {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  loader.job.pp = pp;
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  TrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = steps;
  options.source.max_bytes = 64 << 10;  // so that little is fetched ahead
  options.max_batches_held = max_batches_held;
  auto shim = TrainerShim::Create(std::move(options), std::move(clients));
  EXPECT_TRUE(shim.ok()) << shim.status();
  return *std::move(shim);
}

Batch NextOf(TrainerShim* shim) {
  auto batch = shim->Next();
  EXPECT_TRUE(batch.ok()) << batch.status();
  return *std::move(batch);
}

// The digests of all batches, each taken before the next batch is asked for.
std::vector<std::string> GetDigests(v1::Module module) {
  const auto shim = MakeShim(module, 0);
  std::vector<std::string> digests;
  while (true) {
    const auto batch = shim->Next();
    if (!batch.ok()) return digests;
    digests.push_back(ComputeDigest(**batch));
  }
}

class BatchLifetimeTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(BatchLifetimeTest, HeldBatchesStayUnchanged) {
  const size_t held = GetParam();
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const std::vector<std::string> want = GetDigests(module);
    ASSERT_EQ(want.size(), 16u);
    const auto shim = MakeShim(module, held);
    std::vector<Batch> last;  // the oldest first
    for (size_t i = 0; i < want.size(); ++i) {
      if (last.size() == held) last.erase(last.begin());
      last.push_back(NextOf(shim.get()));
      for (size_t k = 0; k < last.size(); ++k) {
        EXPECT_EQ(ComputeDigest(*last[k]), want[i + 1 - last.size() + k]);
      }
    }
    EXPECT_EQ(shim->batches_held(), held);
    EXPECT_EQ(shim->pool_entries(), held);
    EXPECT_EQ(shim->Next().status().code(),
              absl::StatusCode::kResourceExhausted);
    last.clear();
    EXPECT_EQ(shim->batches_held(), 0u);
    EXPECT_EQ(shim->Next().status().code(), absl::StatusCode::kOutOfRange);
  }
}

INSTANTIATE_TEST_SUITE_P(Held, BatchLifetimeTest,
                         ::testing::Values(1, 2, 3, 4, 8));

TEST(BatchLifetimeTest,
     TooManyHeldAreRefusedByNameAndTheBatchComesAfterARelease) {
  const std::vector<std::string> want = GetDigests(v1::MODULE_LANGUAGE);
  const auto shim = MakeShim(v1::MODULE_LANGUAGE, 3);
  std::vector<Batch> held;
  for (int i = 0; i < 3; ++i) held.push_back(NextOf(shim.get()));
  const Batch another = held[1];
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = shim->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("all 3 batches of max_batches_held are held"),
                      HasSubstr("step 0 micro-batch 0 (1 reference)"),
                      HasSubstr("step 0 micro-batch 1 (2 references)"),
                      HasSubstr("step 1 micro-batch 0 (1 reference)"),
                      HasSubstr("raise max_batches_held")));
  }
  // One of two references: the batch is still held.
  held[1].Reset();
  EXPECT_FALSE(shim->Next().ok());
  held[0].Reset();
  const Batch next = NextOf(shim.get());
  EXPECT_EQ(next->step, 1u);
  EXPECT_EQ(next->micro_batch, 1u);
  EXPECT_EQ(ComputeDigest(*next), want[3]);
  EXPECT_EQ(ComputeDigest(*another), want[1]);
}

// A Next that is refused has pulled nothing.
TEST(BatchLifetimeTest, ARefusedNextTakesNothingFromTheStream) {
  const auto shim = MakeShim(v1::MODULE_LANGUAGE, 1, /*steps=*/1);
  Batch first = NextOf(shim.get());
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(shim->Next().ok());
  EXPECT_EQ(shim->next_step(), 0u);
  EXPECT_EQ(shim->schedule()->step(), 0u);
  first.Reset();
  EXPECT_EQ(NextOf(shim.get())->micro_batch, 1u);
}

TEST(BatchLifetimeTest, TheDefaultIsEnoughForThePipeline) {
  for (const auto& [pp, want] : std::vector<std::pair<uint32_t, size_t>>{
           {1, 4}, {2, 4}, {3, 5}, {8, 10}}) {
    const auto shim = MakeShim(v1::MODULE_LANGUAGE, 0, /*steps=*/16, pp);
    std::vector<Batch> held;
    while (true) {
      auto batch = shim->Next();
      if (!batch.ok()) break;
      held.push_back(*std::move(batch));
    }
    EXPECT_EQ(held.size(), want) << pp;
  }
}

TEST(BatchLifetimeTest, ReleasedOnAnotherThreadWhileTheShimRuns) {
  const std::vector<std::string> want = GetDigests(v1::MODULE_VISION);
  const auto shim = MakeShim(v1::MODULE_VISION, 2);
  std::vector<std::thread> holders;
  for (const std::string& digest : want) {
    absl::StatusOr<Batch> batch = shim->Next();
    while (absl::IsResourceExhausted(batch.status())) {
      std::this_thread::yield();
      batch = shim->Next();
    }
    ASSERT_TRUE(batch.ok()) << batch.status();
    holders.emplace_back([&digest, held = *std::move(batch)]() mutable {
      EXPECT_EQ(ComputeDigest(*held), digest);
      held.Reset();
    });
  }
  for (std::thread& holder : holders) holder.join();
  EXPECT_LE(shim->pool_entries(), 2u);
}

TEST(BatchLifetimeTest, OutlivesTheShim) {
  const std::vector<std::string> want = GetDigests(v1::MODULE_LANGUAGE);
  std::vector<Batch> held;
  {
    const auto shim = MakeShim(v1::MODULE_LANGUAGE, 4);
    for (int i = 0; i < 3; ++i) held.push_back(NextOf(shim.get()));
    held.erase(held.begin());
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(ComputeDigest(*held[i]), want[i + 1]);
    EXPECT_EQ(held[i]->schedule->step(), held[i]->step);
  }
  std::thread([held = std::move(held)] {}).join();
}

// Batches held when the shim is cancelled stay valid.
TEST(BatchLifetimeTest, OutlivesAnError) {
  const auto shim = MakeShim(v1::MODULE_LANGUAGE, 4);
  const Batch batch = NextOf(shim.get());
  const std::string digest = ComputeDigest(*batch);
  shim->Cancel();
  EXPECT_EQ(shim->Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ComputeDigest(*batch), digest);
}

// Further micro-batches take no more memory.
TEST(BatchLifetimeTest, TheSteadyStateAllocatesNoBatchMemory) {
  if (!CanCountMalloc()) GTEST_SKIP() << "a sanitizer has malloc for itself";
  const auto shim = MakeShim(v1::MODULE_VISION, 3, /*steps=*/900);
  std::vector<Batch> held(2);
  int64_t made = 0;  // bytes
  const auto run = [&](int batches) {
    for (int i = 0; i < batches; ++i) {
      held[i % 2].Reset();
      held[i % 2] = NextOf(shim.get());
      made += held[i % 2]->Get<float>("pixel_values").size() * sizeof(float);
    }
  };
  run(400);
  const PackedBatch* const addresses[] = {&*held[0], &*held[1]};
  made = 0;
  StartMallocCount();
  run(1200);
  // Blocks and schedules, whose number fetched ahead varies, come and go;
  // batches must not add to it.
  EXPECT_LT(ReadMallocCount().bytes, made / 50);
  EXPECT_LE(shim->pool_entries(), 3u);
  for (const Batch& each : held) {
    EXPECT_TRUE(&*each == addresses[0] || &*each == addresses[1]);
  }
}

// Blocks in shared memory that the server has overwritten after Next answered
// them: the rank says so, whatever the memory then holds.

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
