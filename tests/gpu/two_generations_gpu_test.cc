// A rank on a GPU whose server dies and is started again: the batches are those
// of a run without it, and the dead server's arena is unpinned and unmapped.

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/config/config_loader.h"
#include "tests/fakes/dead_arenas.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/cuda_trainer_shim.h"
#include "trainer_shim/host/packed_batch.h"

namespace ballast {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kSteps = 120;

class TwoGenerationsGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = ::testing::TempDir() + "/two_generations_gpu";
    arenas_ = absl::StrCat("/dev/shm/ballast-test-", getpid());
    std::filesystem::create_directories(folder);
    std::filesystem::create_directories(arenas_);
    OrDie(WriteFormulaDataset(folder + "/docs-0.tar", 64));
    cluster_ = OrDie(TestCluster::Start(OrDie(ParseConfig(
        absl::StrCat(
            "sources: [{name: docs, format: webdataset, path: 'docs-*.tar'}]\n"
            "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
            "batch: {global: 4, micro: 4}\n"
            "balance: {delivery: direct}\n"
            "topology: {modules: {vision: {dp: 1}, language: {dp: 1}}}\n"
            "serve: {threads: 2, memory: 64MiB, "
            "listen: ['unix:/replaced'], arena: '",
            arenas_, "'}\n"),
        "test.yaml", folder))));
  }
  void TearDown() override { std::filesystem::remove_all(arenas_); }

  // The digests of a vision rank's batches; `between` runs before each step.
  std::vector<std::string> Run(const std::function<void(uint64_t)>& between) {
    CudaTrainerShim::Options options;
    options.servers.addresses = cluster_->addresses();
    options.source.role.set_module(v1::MODULE_VISION);
    options.source.steps = kSteps;
    const CudaStream stream = OrDie(CudaStream::Create());
    const auto shim = OrDie(CudaTrainerShim::Create(std::move(options)));
    std::vector<std::string> digests;
    for (uint64_t step = 0; step < kSteps; ++step) {
      between(step);
      const auto batch = OrDie(shim->Next(stream.get()));
      digests.push_back(ComputeDigest(OrDie(CopyToHost(*batch, stream.get()))));
    }
    if (after_) after_();
    return digests;
  }

  std::string arenas_;
  std::unique_ptr<TestCluster> cluster_;
  std::function<void()> after_;  // while the shim still lives
};

TEST_F(TwoGenerationsGpuTest, DeadServersArenasAreLetGoOf) {
  const auto undisturbed = Run([](uint64_t) {});
  ArenaWatch arenas;
  after_ = [&] {
    EXPECT_TRUE(arenas.AwaitGone(absl::Seconds(30)));
    EXPECT_THAT(DeadArenas(), IsEmpty()) << "kept";
  };
  const auto disturbed = Run([&](uint64_t step) {
    if (step != 5 && step != 30) return;
    arenas.Watch(arenas_);
    cluster_->Kill(0);
    OrDie(cluster_->Restart(0));
  });
  EXPECT_EQ(disturbed, undisturbed);
}

}  // namespace
}  // namespace ballast
