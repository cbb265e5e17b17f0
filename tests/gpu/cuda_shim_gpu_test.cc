// Compares the whole path into GPU memory with the path into host memory: every
// batch byte for byte.

#include <filesystem>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/same_as_on_host.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 3;

// Datasets, written once: `docs` with 0 to 3 images per sample, `text` without
// images.
const std::string& Datasets() {
  static const std::string* directory = [] {
    auto* path = new std::string(::testing::TempDir() + "/formula_gpu");
    std::filesystem::create_directories(*path);
    OrDie(WriteFormulaDataset(*path + "/docs.tar", 50));
    OrDie(WriteFormulaDataset(*path + "/text.tar", 50,
                              [](uint32_t) { return 0u; }));
    OrDie(WriteFormulaDataset(*path + "/few.tar", 50, [](uint32_t sample) {
      return sample % 16 == 0 ? 1u : 0u;
    }));
    return path;
  }();
  return *directory;
}

LoadedConfig MakeConfig(uint32_t vision, uint32_t language,
                        const std::string& delivery,
                        const std::string& dataset = "docs",
                        const std::string& balance = "",
                        const std::string& more = "") {
  const uint32_t grid = std::lcm(vision, language);
  return OrDie(ParseConfig(
      absl::StrCat(
          "sources: [{name: docs, format: webdataset, path: '", dataset,
          ".tar'}]\nmodel: {profile: qwen2_5_vl, max_pixels: 200704}\n"
          "batch: {global: ",
          8 * grid, ", micro: ", 4 * grid,
          "}\ntopology: {modules: {vision: {dp: ", vision, "}, language: {dp: ",
          language, "}}}\nbalance: {delivery: ", delivery, balance,
          "}\nserve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n",
          more),
      "test.yaml", Datasets()));
}

using Case = std::tuple<std::tuple<uint32_t, uint32_t>, const char*, bool>;

class CudaShimGpuTest : public ::testing::TestWithParam<Case> {};

TEST_P(CudaShimGpuTest, SameBatchesAsOnTheHost) {
  const auto& [dp, delivery, overlap] = GetParam();
  const auto& [vision, language] = dp;
  CudaWorldOptions options;
  options.overlap = overlap;
  options.steps = kSteps;
  ExpectSameAsOnHost(MakeConfig(vision, language, delivery), options);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, CudaShimGpuTest,
    ::testing::Combine(::testing::Values(std::make_tuple(1u, 1u),
                                         std::make_tuple(4u, 4u),
                                         std::make_tuple(2u, 4u),
                                         std::make_tuple(2u, 3u)),
                       ::testing::Values("exchange", "direct", "hybrid", "off"),
                       ::testing::Bool()));

TEST(CudaShimGpuTest, Bfloat16) {
  CudaWorldOptions options;
  options.pixel_type = PixelType::kBfloat16;
  options.steps = kSteps;
  ExpectSameAsOnHost(MakeConfig(4, 4, "exchange"), options);
}

TEST(CudaShimGpuTest, RanksWithoutImages) {
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameAsOnHost(MakeConfig(2, 2, "exchange", "text"), options);
}

TEST(CudaShimGpuTest, DummyImages) {
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameAsOnHost(
      MakeConfig(4, 4, "exchange", "few", ", align_images: true"), options);
}

TEST(CudaShimGpuTest, Windows) {
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameAsOnHost(
      MakeConfig(4, 2, "exchange", "docs", ", scope: window, window: 2"),
      options);
}

TEST(CudaShimGpuTest, ScheduledPacking) {
  CudaWorldOptions options;
  options.steps = kSteps;
  ExpectSameAsOnHost(
      MakeConfig(2, 2, "exchange", "docs", "",
                 "packing: {mode: scheduled, max_tokens_per_rank: 4096}\n"),
      options);
}

TEST(CudaShimGpuTest, PaddedRows) {
  CudaWorldOptions options;
  options.steps = kSteps;
  for (const char* row_length : {"auto", "4096"}) {
    ExpectSameAsOnHost(
        MakeConfig(2, 4, "exchange", "docs", ", equal_count: true",
                   absl::StrCat("packing: {mode: padded, row_length: ",
                                row_length, "}\n")),
        options);
  }
}

// A GPU for every rank, over NCCL; the number of ranks is the number of GPUs.
class NcclGpuTest
    : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(NcclGpuTest, SameBatchesAsOnTheHost) {
  const uint32_t ranks = DeviceCount();
  CudaWorldOptions options;
  options.exchange = Exchange::kNccl;
  options.overlap = std::get<1>(GetParam());
  options.steps = kSteps;
  ExpectSameAsOnHost(MakeConfig(ranks, ranks, std::get<0>(GetParam())),
                     options);
}

INSTANTIATE_TEST_SUITE_P(Deliveries, NcclGpuTest,
                         ::testing::Combine(::testing::Values("exchange",
                                                              "hybrid"),
                                            ::testing::Bool()));

TEST(NcclGpuTest, ModulesOfDifferentSize) {
  const uint32_t ranks = DeviceCount();
  CudaWorldOptions options;
  options.exchange = Exchange::kNccl;
  options.steps = kSteps;
  ExpectSameAsOnHost(MakeConfig(ranks, ranks > 1 ? ranks / 2 : 1, "exchange"),
                     options);
}

TEST(NcclGpuTest, AThousandSteps) {
  const uint32_t ranks = DeviceCount();
  const auto cluster =
      OrDie(TestCluster::Start(MakeConfig(ranks, ranks, "exchange", "few"), 1));
  CudaWorldOptions options;
  options.exchange = Exchange::kNccl;
  options.steps = 1000;
  const auto device = RunCudaRanks(cluster->addresses(), options);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->size(), 1000u * 2 * 2 * ranks);  // 2 micro-batches, modules
  for (const uint64_t step : {0, 500, 998}) {
    const auto host = OrDie(cluster->RunRanks(step, 2));
    for (const auto& [key, want] : host) {
      EXPECT_EQ(ComputeDigest(device->at(key)), ComputeDigest(want));
    }
  }
}

// The last rank starts a step later than the others. All end and report the
// cause.
TEST(NcclGpuTest, ARankAtAnotherStepStopsAll) {
  const uint32_t ranks = DeviceCount();
  if (ranks == 1) GTEST_SKIP() << "one rank cannot differ from itself";
  const auto cluster =
      OrDie(TestCluster::Start(MakeConfig(ranks, ranks, "exchange"), 1));
  auto group = MakeGroup(Exchange::kNccl, ranks);
  std::vector<absl::Status> ends(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CudaTrainerShim::Options shim;
      shim.servers.addresses = cluster->addresses();
      shim.source.role.set_module(v1::MODULE_VISION);
      shim.source.role.set_dp_rank(rank);
      shim.source.start_step = rank + 1 == ranks ? 1 : 0;
      shim.communicator = std::move(group[rank]);
      shim.device = rank;
      shim.timeout = absl::Seconds(20);
      const auto made = OrDie(CudaTrainerShim::Create(std::move(shim)));
      const CudaStream stream = OrDie(CudaStream::Create());
      while (ends[rank].ok()) {
        ends[rank] = made->Next(stream.get()).status();
        stream.Synchronize().IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsDataLoss(end)) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("step 1 micro-batch 0"));
  }
}

// Rank 0 hangs after some batches; 0: NCCL has not connected it yet. The others
// end in bounded time.
class NcclHangGpuTest : public ::testing::TestWithParam<int> {};

TEST_P(NcclHangGpuTest, ARankThatHangsEndsTheOthers) {
  const int batches = GetParam();
  const uint32_t ranks = DeviceCount();
  if (ranks == 1) GTEST_SKIP() << "a rank without peers waits for none";
  const auto cluster =
      OrDie(TestCluster::Start(MakeConfig(ranks, ranks, "exchange"), 1));
  auto group = MakeGroup(Exchange::kNccl, ranks);
  std::vector<absl::Status> ends(ranks);
  std::latch others_ended(ranks - 1);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      CudaTrainerShim::Options shim;
      shim.servers.addresses = cluster->addresses();
      shim.source.role.set_module(v1::MODULE_LANGUAGE);
      shim.source.role.set_dp_rank(rank);
      shim.communicator = std::move(group[rank]);
      shim.device = rank;
      shim.timeout = absl::Seconds(3);
      const auto made = OrDie(CudaTrainerShim::Create(std::move(shim)));
      const CudaStream stream = OrDie(CudaStream::Create());
      for (int i = 0; ends[rank].ok() && (rank != 0 || i < batches); ++i) {
        ends[rank] = made->Next(stream.get()).status();
        stream.Synchronize().IgnoreError();
      }
      if (rank != 0) others_ended.count_down();
      others_ended.wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    EXPECT_FALSE(ends[rank].ok());
    EXPECT_FALSE(absl::IsOutOfRange(ends[rank])) << ends[rank];
  }
}

INSTANTIATE_TEST_SUITE_P(Batches, NcclHangGpuTest, ::testing::Values(0, 1));

}  // namespace
}  // namespace ballast
