// The C interface with BACKEND_CUDA: every batch byte for byte as the host
// makes it, over each kind of communicator.

#include <nccl.h>

#include <barrier>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/trainer_shim/c_api/c_batch.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nccl_connect.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr int kModules[] = {BALLAST_MODULE_VISION, BALLAST_MODULE_LANGUAGE};
constexpr uint64_t kSteps = 3;

enum class Kind { kInProcess, kId, kMeet, kBorrow };

LoadedConfig MakeConfig(uint32_t dp) {
  const std::string directory = ::testing::TempDir() + "/c_api_gpu";
  std::filesystem::create_directories(directory);
  OrDie(WriteFormulaDataset(directory + "/docs.tar", 50));
  return OrDie(ParseConfig(
      absl::StrCat(
          "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
          "model: {profile: qwen2_5_vl, max_pixels: 200704}\nbatch: {global: ",
          8 * dp, ", micro: ", 4 * dp,
          "}\ntopology: {modules: {vision: {dp: ", dp, "}, language: {dp: ", dp,
          "}}}\nserve: {threads: 2, memory: 64MiB, listen: "
          "['unix:/replaced']}\n"),
      "test.yaml", directory));
}

// One rank of each module on one GPU, as in one process of a trainer.
struct Process {
  uint32_t rank = 0;
  int device = 0;
  ballast_communicator* ends[2] = {};
};

class CApiGpuTest : public ::testing::TestWithParam<Kind> {
 protected:
  using Batches =
      std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, CBatch>;

  void Connect(const TestCluster& cluster) {
    for (const std::string& address : cluster.addresses()) {
      addresses_.push_back(address.c_str());
    }
    connection_.struct_size = sizeof(connection_);
    connection_.num_servers = addresses_.size();
    connection_.servers = addresses_.data();
  }

  // Creates a process's communicators, together with the other processes'
  // threads.
  void MakeEnds(Kind kind, uint32_t dp,
                const std::vector<std::vector<ballast_communicator*>>& here,
                const void* ids, Process* process) {
    ballast_nccl_options nccl = {};
    nccl.struct_size = sizeof(nccl);
    nccl.device = process->device;
    nccl.max_ctas = 4;
    for (int m = 0; m < 2; ++m) {
      const char* id =
          static_cast<const char*>(ids) + m * BALLAST_NCCL_ID_BYTES;
      int status = BALLAST_OK;
      switch (kind) {
        case Kind::kInProcess:
          process->ends[m] = here[m][process->rank];
          break;
        case Kind::kId:
          status = ballast_communicator_nccl(id, process->rank, dp, &nccl,
                                             &process->ends[m]);
          break;
        case Kind::kMeet:
          status = ballast_communicator_nccl_meet(
              &connection_, m == 0 ? "vision" : "language", process->rank, dp,
              60, &nccl, &process->ends[m]);
          break;
        case Kind::kBorrow: {
          const NcclApi* api = OrDie(LoadNccl());
          OrDie(cudaSetDevice(process->device), "choosing the device");
          ncclUniqueId unique;
          std::memcpy(unique.internal, id, sizeof(unique.internal));
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          ncclComm_t trainers = nullptr;
          ASSERT_EQ(api->CommInitRankConfig(&trainers, dp, unique,
                                            process->rank, &config),
                    ncclSuccess);
          status = ballast_communicator_nccl_borrow(trainers, &nccl,
                                                    &process->ends[m]);
          lent_[process->rank].push_back(trainers);
          break;
        }
      }
      ASSERT_EQ(status, BALLAST_OK) << ballast_last_error();
    }
  }

  void RunProcess(const Process& process, std::barrier<>* made,
                  Batches* batches) {
    ballast_shim* shims[2] = {};
    for (int m = 0; m < 2; ++m) {
      ballast_shim_options options = {};
      options.struct_size = sizeof(options);
      options.connection = &connection_;
      options.module = kModules[m];
      options.dp_rank = process.rank;
      options.communicator = process.ends[m];
      options.backend = BALLAST_BACKEND_CUDA;
      options.device = process.device;
      options.pixel_type = BALLAST_FLOAT32;
      options.steps = kSteps;
      EXPECT_EQ(ballast_shim_create(&options, &shims[m]), BALLAST_OK)
          << ballast_last_error();
    }
    OrDie(cudaSetDevice(process.device), "choosing the device");
    const CudaStream stream = OrDie(CudaStream::Create());
    made->arrive_and_wait();
    int done = 0;
    while (done < 2) {
      done = 0;
      for (ballast_shim* shim : shims) {
        const ballast_batch* batch = nullptr;
        const int status = ballast_shim_next(shim, stream.get(), &batch);
        if (status != BALLAST_OK) {
          EXPECT_EQ(status, BALLAST_OUT_OF_RANGE) << ballast_last_error();
          ++done;
          continue;
        }
        OrDie(stream.Synchronize());
        CBatch read = ReadBatch(
            batch, stream.get(),
            [&](void* to, const void* from, uint64_t bytes) {
              OrDie(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost),
                    "copy of a tensor");
            });
        ballast_batch_release(batch);
        for (const auto& [name, tensor] : read.tensors) {
          const bool host = tensor.tensor.device_type == BALLAST_DEVICE_CPU;
          EXPECT_EQ(host, name.ends_with("_host")) << name;
          if (host) continue;
          EXPECT_EQ(tensor.tensor.device_id, process.device);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.tensor.data) % 256, 0);
        }
        MutexLock lock(&mutex_);
        (*batches)[{read.info.step, read.info.micro_batch, read.info.module,
                    read.info.dp_rank}] = std::move(read);
      }
    }
    for (ballast_shim* shim : shims) ballast_shim_destroy(shim);
  }

  std::vector<const char*> addresses_;
  ballast_connection connection_ = {};
  std::map<uint32_t, std::vector<ncclComm_t>> lent_;
  Mutex mutex_;
};

TEST_P(CApiGpuTest, BatchesEqualTheHosts) {
  const Kind kind = GetParam();
  const uint32_t dp = kind == Kind::kInProcess ? 4 : DeviceCount();
  const auto cluster = OrDie(TestCluster::Start(MakeConfig(dp), 1));
  // Ranks meet through the first server that serves.
  if (kind == Kind::kMeet) addresses_.push_back("unix:/nowhere/gone.sock");
  Connect(*cluster);
  std::vector<std::vector<ballast_communicator*>> here(2);
  std::vector<char> ids(2 * BALLAST_NCCL_ID_BYTES);
  for (int m = 0; m < 2; ++m) {
    here[m].resize(dp);
    if (kind == Kind::kInProcess) {
      ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_CUDA, dp,
                                                here[m].data()),
                BALLAST_OK);
    } else {
      ASSERT_EQ(ballast_nccl_id(&ids[m * BALLAST_NCCL_ID_BYTES]), BALLAST_OK)
          << ballast_last_error();
    }
  }
  for (uint32_t rank = 0; rank < dp; ++rank) lent_[rank];
  Batches got;
  std::barrier<> made(dp);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < dp; ++rank) {
    threads.emplace_back([&, rank] {
      Process process;
      process.rank = rank;
      process.device = kind == Kind::kInProcess ? 0 : rank;
      MakeEnds(kind, dp, here, ids.data(), &process);
      RunProcess(process, &made, &got);
      // The lent communicator is intact and still its owner's.
      for (ncclComm_t trainers : lent_.at(rank)) {
        EXPECT_EQ(OrDie(LoadNccl())->CommDestroy(trainers), ncclSuccess);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto want = OrDie(cluster->RunRanks(0, kSteps));
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [key, batch] : want) ExpectSameBatch(got.at(key), batch);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CApiGpuTest,
                         ::testing::Values(Kind::kInProcess, Kind::kId,
                                           Kind::kMeet, Kind::kBorrow));

TEST_F(CApiGpuTest, AMissingDeviceIsAnError) {
  const auto cluster = OrDie(TestCluster::Start(MakeConfig(1), 1));
  Connect(*cluster);
  ballast_shim_options options = {};
  options.struct_size = sizeof(options);
  options.connection = &connection_;
  options.module = BALLAST_MODULE_VISION;
  options.backend = BALLAST_BACKEND_CUDA;
  options.device = 99;
  ballast_shim* shim = nullptr;
  EXPECT_NE(ballast_shim_create(&options, &shim), BALLAST_OK);
  EXPECT_THAT(ballast_last_error(), HasSubstr("choosing the device"));
}

}  // namespace
}  // namespace ballast
