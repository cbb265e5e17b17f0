// Compares batches in GPU memory with the host's, for ranks at all places of a
// module: tensor, pipeline and context parallelism.

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/cuda/in_process_device_communicator.h"
#include "trainer_shim/host/trainer_shim.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 3;

// A job with two data-parallel ranks per module, each with `tp`, `pp` and `cp`
// peers.
LoadedConfig MakeConfig(uint32_t tp, uint32_t pp, uint32_t cp) {
  const std::string directory = ::testing::TempDir() + "/formula_places";
  std::filesystem::create_directories(directory);
  OrDie(WriteFormulaDataset(directory + "/docs.tar", 50));
  return OrDie(ParseConfig(
      absl::StrCat(
          "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
          "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
          "batch: {global: 16, micro: 8}\n"
          "topology: {modules: {vision: {dp: 2, tp: ",
          tp, ", pp: ", pp, "}, language: {dp: 2, tp: ", tp, ", pp: ", pp,
          ", cp: ", cp,
          "}}}\nbalance: {delivery: direct}\nserve: {threads: 2, memory: "
          "64MiB, listen: ['unix:/replaced']}\n"),
      "test.yaml", directory));
}

// Samples with images in packs that up to four of eight ranks share.
LoadedConfig MakeSharedConfig() {
  return OrDie(ParseConfig(
      "sources: [{name: mock, format: mock, lengths: {mode: lognormal, min: "
      "20, max: 900, mean: 120, sigma: 1.2, count: 400}, images: {max: 2, "
      "pixels: {min: 3000, max: 90000, mean: 20000, sigma: 1}}}]\n"
      "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
      "batch: {global: 32, micro: 32, max_tokens: 1000}\n"
      "topology: {modules: {vision: {dp: 8}, language: {dp: 8}}}\n"
      "balance: {delivery: direct, placement: split}\n"
      "packing: {mode: scheduled, max_tokens_per_rank: 260, dynamic_cp: 4}\n"
      "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n",
      "test.yaml", ::testing::TempDir()));
}

v1::Role RoleOf(v1::Module module) {
  v1::Role role;
  role.set_module(module);
  role.set_dp_rank(1);
  return role;
}

TrainerPlace GetPlace(uint32_t tp_rank, uint32_t pp_rank, uint32_t cp_rank) {
  TrainerPlace place;
  place.tp_rank = tp_rank;
  place.pp_rank = pp_rank;
  place.cp_rank = cp_rank;
  return place;
}

std::vector<PackedBatch> OnHost(const TestCluster& cluster, v1::Module module,
                                const TrainerPlace& place) {
  TrainerShim::Options options;
  options.servers.addresses = cluster.addresses();
  options.source.role = RoleOf(module);
  options.source.place = place;
  options.source.steps = kSteps;
  const auto shim = OrDie(TrainerShim::Create(std::move(options)));
  std::vector<PackedBatch> batches;
  while (true) {
    const auto batch = shim->Next();
    if (absl::IsOutOfRange(batch.status())) return batches;
    OrDie(batch.status());
    batches.push_back(**batch);
  }
}

// The batches on the device. With `peers`, rank 0 sends its batches to the
// others.
std::vector<PackedBatch> OnDevice(
    const TestCluster& cluster, v1::Module module, const TrainerPlace& place,
    std::unique_ptr<Communicator> peers = nullptr) {
  CudaTrainerShim::Options options;
  options.servers.addresses = cluster.addresses();
  options.source.role = RoleOf(module);
  options.source.place = place;
  options.source.steps = kSteps;
  options.pixel_type = PixelType::kFloat32;
  const bool broadcasts = peers != nullptr;
  options.tensor_communicator = std::move(peers);
  const auto shim = OrDie(CudaTrainerShim::Create(std::move(options)));
  const CudaStream stream = OrDie(CudaStream::Create());
  std::vector<PackedBatch> batches;
  while (true) {
    const bool receives = broadcasts && place.tp_rank > 0;
    const auto batch = receives ? shim->ReceiveFromTensorPeer(stream.get())
                                : shim->Next(stream.get());
    if (absl::IsOutOfRange(batch.status())) return batches;
    OrDie(batch.status());
    if (broadcasts && !receives) OrDie(shim->SendToTensorPeers(stream.get()));
    batches.push_back(OrDie(CopyToHost(**batch, stream.get())));
  }
}

void ExpectSame(const std::vector<PackedBatch>& got,
                const std::vector<PackedBatch>& want) {
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(got.empty());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].step, want[i].step);
    EXPECT_EQ(got[i].micro_batch, want[i].micro_batch);
    EXPECT_EQ(ComputeDigest(got[i]), ComputeDigest(want[i])) << i;
    EXPECT_EQ(got[i].totals, want[i].totals);
    EXPECT_EQ(got[i].micro_batch_totals, want[i].micro_batch_totals);
    EXPECT_EQ(got[i].step_totals, want[i].step_totals);
    ASSERT_EQ(got[i].samples.size(), want[i].samples.size());
    for (size_t k = 0; k < got[i].samples.size(); ++k) {
      EXPECT_EQ(got[i].samples[k].name, want[i].samples[k].name);
      EXPECT_EQ(got[i].samples[k].placeholder, want[i].samples[k].placeholder);
    }
  }
}

TEST(TrainerPlaceGpuTest, ContextRanksAndStagesEqualTheHosts) {
  const uint32_t pp = 3, cp = 4;
  const auto cluster = OrDie(TestCluster::Start(MakeConfig(1, pp, cp), 1));
  for (uint32_t stage = 0; stage < pp; ++stage) {
    for (uint32_t rank = 0; rank < cp; ++rank) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, " context rank ", rank));
      const TrainerPlace place = GetPlace(0, stage, rank);
      ExpectSame(OnDevice(*cluster, v1::MODULE_LANGUAGE, place),
                 OnHost(*cluster, v1::MODULE_LANGUAGE, place));
    }
  }
}

TEST(TrainerPlaceGpuTest, ARankThatSharesPacksEqualsTheHosts) {
  const auto cluster = OrDie(TestCluster::Start(MakeSharedConfig(), 1));
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const std::vector<PackedBatch> want = OnHost(*cluster, module, {});
    ExpectSame(OnDevice(*cluster, module, {}), want);
    bool shares = false;
    for (const PackedBatch& batch : want) {
      EXPECT_EQ(batch.Get<int64_t>("pack_input_ids").empty(),
                module == v1::MODULE_VISION);
      shares |= !batch.pack_share.empty() && batch.pack_share[0] > 1;
    }
    EXPECT_EQ(shares, module == v1::MODULE_LANGUAGE);
  }
}

TEST(TrainerPlaceGpuTest, TensorPeersGetWhatRankZeroGot) {
  const uint32_t tp = 4;
  const auto cluster = OrDie(TestCluster::Start(MakeConfig(tp, 1, 2), 1));
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    const std::vector<PackedBatch> want =
        OnHost(*cluster, module, GetPlace(0, 0, 0));
    auto groups = InProcessDeviceGroup(tp);
    std::vector<std::vector<PackedBatch>> got(tp);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < tp; ++rank) {
      threads.emplace_back([&, rank] {
        got[rank] = OnDevice(*cluster, module, GetPlace(rank, 0, 0),
                             std::move(groups[rank]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t rank = 0; rank < tp; ++rank) {
      SCOPED_TRACE(absl::StrCat("tensor rank ", rank));
      ExpectSame(got[rank], want);
    }
  }
}

// Two tensor ranks. All rows have one length, so sizes do not show which batch
// rank 0 sends. A step has two micro-batches.
class TensorPeersGpuTest : public ::testing::Test {
 protected:
  TensorPeersGpuTest()
      : cluster_(OrDie(TestCluster::Start(
            OrDie(ParseConfig(
                "sources: [{name: mock, format: mock, lengths: {mode: "
                "lognormal, min: 20, max: 90, mean: 50, sigma: 0.5, count: "
                "400}}]\n"
                "model: {profile: qwen2_5_vl}\n"
                "batch: {global: 16, micro: 8, max_tokens: 96}\n"
                "packing: {mode: padded, row_length: 96}\n"
                "topology: {modules: {vision: {dp: 2}, language: {dp: 2, tp: "
                "2}}}\n"
                "balance: {delivery: direct, equal_count: true}\n"
                "serve: {threads: 2, memory: 64MiB, listen: "
                "['unix:/replaced']}\n",
                "test.yaml", ::testing::TempDir())),
            1))) {}

  std::unique_ptr<CudaTrainerShim> MakeShim(uint32_t tp_rank,
                                            uint64_t steps = 0) {
    CudaTrainerShim::Options options;
    options.servers.addresses = cluster_->addresses();
    options.source.role = RoleOf(v1::MODULE_LANGUAGE);
    options.source.place = GetPlace(tp_rank, 0, 0);
    options.source.steps = steps;
    options.tensor_communicator = std::move(group_[tp_rank]);
    options.timeout = absl::Seconds(10);
    return OrDie(CudaTrainerShim::Create(std::move(options)));
  }
  // How the batches of rank 1 end, which receives those of `steps`.
  absl::Status Receive(uint64_t steps = 0) {
    const auto shim = MakeShim(1, steps);
    const CudaStream stream = OrDie(CudaStream::Create());
    while (true) {
      const absl::Status end =
          shim->ReceiveFromTensorPeer(stream.get()).status();
      stream.Synchronize().IgnoreError();
      if (!end.ok()) return end;
    }
  }

  const std::unique_ptr<TestCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> group_ = InProcessDeviceGroup(2);
};

TEST_F(TensorPeersGpuTest, ABatchThatRankZeroDidNotSendIsFound) {
  absl::Status end;
  std::thread peer([&] { end = Receive(); });
  const auto shim = MakeShim(0);
  const CudaStream stream = OrDie(CudaStream::Create());
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->SendToTensorPeers(stream.get()));
  peer.join();
  EXPECT_TRUE(absl::IsDataLoss(end)) << end;
  EXPECT_THAT(std::string(end.message()),
              HasSubstr("tensor rank 0 sent step 0 micro-batch 1, wanted step "
                        "0 micro-batch 0"));
}

// It is also found in the last batch, though the next call only reports the
// end.
TEST_F(TensorPeersGpuTest, ALastBatchThatRankZeroDidNotSendIsFound) {
  absl::Status end;
  std::thread peer([&] { end = Receive(/*steps=*/1); });
  const auto shim = MakeShim(0);
  const CudaStream stream = OrDie(CudaStream::Create());
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->SendToTensorPeers(stream.get()));
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->SendToTensorPeers(stream.get()));
  peer.join();
  EXPECT_TRUE(absl::IsDataLoss(end)) << end;
  EXPECT_THAT(std::string(end.message()),
              HasSubstr("tensor rank 0 sent step 1 micro-batch 0, wanted step "
                        "0 micro-batch 1"));
}

TEST_F(TensorPeersGpuTest, ARankZeroThatHangsEndsItsPeers) {
  absl::Status end;
  std::thread peer([&] { end = Receive(); });
  const auto shim = MakeShim(0);
  const CudaStream stream = OrDie(CudaStream::Create());
  OrDie(shim->Next(stream.get()).status());
  OrDie(shim->SendToTensorPeers(stream.get()));
  peer.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(end)) << end;
  EXPECT_THAT(std::string(end.message()),
              HasSubstr("step 0 micro-batch 1 among tensor peers"));
}

TEST(TrainerPlaceGpuTest, ARankThatReceivesNothingRunsTheSameSteps) {
  const auto cluster = OrDie(TestCluster::Start(MakeConfig(1, 2, 1), 1));
  const TrainerPlace place = GetPlace(0, 1, 0);
  const auto batches = OnDevice(*cluster, v1::MODULE_VISION, place);
  ExpectSame(batches, OnHost(*cluster, v1::MODULE_VISION, place));
  for (const PackedBatch& batch : batches) {
    EXPECT_EQ(ComputeDigest(batch), ComputeDigest(PackedBatch()));
    EXPECT_GT(batch.totals.patches, 0);
    EXPECT_EQ(batch.bytes_read, 0);
  }
}

}  // namespace
}  // namespace ballast
