// Blocks in pinned shared memory that the server overwrites before the device
// has read them.

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 8;
constexpr uint64_t kBatches = 2 * kSteps;

FakeLoader Loader() {
  FakeLoader loader;
  loader.job.delivery = v1::DELIVERY_DIRECT;
  loader.in_regions = true;
  return loader;
}

uint64_t NumberOf(uint64_t step, uint32_t micro_batch) {
  return 2 * step + micro_batch;
}

// All micro-batches of a rank: how many came, and what ended them.
struct RankRun {
  uint64_t batches = 0;
  absl::Status end;
};

RankRun RunRank(FakeLoader loader, v1::Module module, bool overlap) {
  std::vector<std::unique_ptr<LoaderClient>> clients;
  clients.push_back(FakeLoaderClient(std::move(loader)));
  CudaTrainerShim::Options options;
  options.source.role.set_module(module);
  options.source.steps = kSteps;
  options.overlap = overlap;
  const CudaStream stream = OrDie(CudaStream::Create());
  const auto shim =
      OrDie(CudaTrainerShim::Create(std::move(options), std::move(clients)));
  RankRun run;
  while (true) {
    run.end = shim->Next(stream.get()).status();
    if (!run.end.ok()) return run;
    ++run.batches;
  }
}

void ExpectOverwritten(const absl::Status& end, uint64_t number) {
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable) << end;
  EXPECT_THAT(end.message(),
              HasSubstr(absl::StrCat("step ", number / 2, " micro-batch ",
                                     number % 2, " was overwritten")));
}

class OverwrittenBlocksGpuTest
    : public ::testing::TestWithParam<std::tuple<v1::Module, bool>> {
 protected:
  RankRun Run(FakeLoader loader) {
    return RunRank(std::move(loader), std::get<0>(GetParam()),
                   std::get<1>(GetParam()));
  }
};

TEST_P(OverwrittenBlocksGpuTest, WholeBlocksReachTheEnd) {
  const RankRun run = Run(Loader());
  EXPECT_EQ(run.batches, kBatches);
  EXPECT_EQ(run.end.code(), absl::StatusCode::kOutOfRange) << run.end;
}

// The blocks of the last batches are checked too, before the end is answered.
TEST_P(OverwrittenBlocksGpuTest, TheLastOnesAreCheckedBeforeTheEnd) {
  for (uint64_t number = kBatches - 5; number < kBatches; ++number) {
    FakeLoader loader = Loader();
    loader.stays_intact = [=](uint64_t step, uint32_t micro_batch) {
      return NumberOf(step, micro_batch) != number;
    };
    const RankRun run = Run(std::move(loader));
    ExpectOverwritten(run.end, number);
    EXPECT_GT(run.batches, number) << "checked before the device read it";
  }
}

TEST_P(OverwrittenBlocksGpuTest, IsTheErrorOfOneThatNoLongerParses) {
  for (const bool overwritten : {true, false}) {
    constexpr uint64_t kNumber = 5;
    FakeLoader loader = Loader();
    loader.on_block = [](uint64_t step, uint32_t micro_batch,
                         absl::Span<uint8_t> bytes) {
      if (NumberOf(step, micro_batch) == kNumber) {
        std::fill(bytes.begin(), bytes.end(), uint8_t{0x5A});
      }
    };
    loader.stays_intact = [=](uint64_t step, uint32_t micro_batch) {
      return !overwritten || NumberOf(step, micro_batch) != kNumber;
    };
    const RankRun run = Run(std::move(loader));
    EXPECT_EQ(run.batches, kNumber);
    if (overwritten) {
      ExpectOverwritten(run.end, kNumber);
    } else {
      EXPECT_EQ(run.end.code(), absl::StatusCode::kInvalidArgument) << run.end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modules, OverwrittenBlocksGpuTest,
    ::testing::Combine(::testing::Values(v1::MODULE_VISION,
                                         v1::MODULE_LANGUAGE),
                       ::testing::Bool()));

}  // namespace
}  // namespace ballast
