// Embeddings through the C interface with BACKEND_CUDA, between ranks that
// share GPU 0 and over NCCL between all GPUs: every row arrives at its sample's
// placeholder, beside the exchange of the samples made ahead on the same
// communicator.

#include <atomic>
#include <barrier>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/schedule/schedule_table.h"
#include "server/config/config_loader.h"
#include "tests/fakes/test_cluster.h"
#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/trainer_shim/c_api/embedding_job.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {
namespace {

constexpr int kModules[] = {BALLAST_MODULE_VISION, BALLAST_MODULE_LANGUAGE};
constexpr uint64_t kSteps = 3;

// Device memory that is freed with the list.
class Arrays {
 public:
  ~Arrays() {
    for (void* array : arrays_) cudaFree(array);
  }
  void* Upload(const std::string& bytes, cudaStream_t stream) {
    void* array = nullptr;
    OrDie(cudaMalloc(&array, bytes.size() + 1), "memory");
    arrays_.push_back(array);
    OrDie(cudaMemcpyAsync(array, bytes.data(), bytes.size(),
                          cudaMemcpyHostToDevice, stream),
          "upload");
    // The bytes may be gone when the copy begins.
    OrDie(cudaStreamSynchronize(stream), "upload");
    return array;
  }

 private:
  std::vector<void*> arrays_;
};

class EmbeddingsGpuTest : public ::testing::TestWithParam<const char*> {
 protected:
  // A rank of each module on one GPU, in one thread.
  void RunRank(uint32_t rank, int device, ballast_communicator* const ends[2],
               std::barrier<>* made) {
    ballast_shim* shims[2] = {};
    for (int m = 0; m < 2; ++m) {
      ballast_shim_options options = {};
      options.struct_size = sizeof(options);
      options.connection = &connection_;
      options.module = kModules[m];
      options.dp_rank = rank;
      options.communicator = ends[m];
      options.backend = BALLAST_BACKEND_CUDA;
      options.device = device;
      options.steps = kSteps;
      options.timeout_s = 60;
      ASSERT_EQ(ballast_shim_create(&options, &shims[m]), BALLAST_OK)
          << ballast_last_error();
    }
    OrDie(cudaSetDevice(device), "choosing the device");
    const CudaStream stream = OrDie(CudaStream::Create());
    made->arrive_and_wait();
    Arrays arrays;
    while (true) {
      const ballast_batch* batches[2] = {};
      int status = BALLAST_OK;
      for (int m = 0; m < 2; ++m) {
        status = ballast_shim_next(shims[m], stream.get(), &batches[m]);
      }
      if (status != BALLAST_OK) {
        EXPECT_EQ(status, BALLAST_OUT_OF_RANGE) << ballast_last_error();
        break;
      }
      EmbeddingMemory memory;
      memory.stream = stream.get();
      memory.upload = [&](const std::string& bytes) {
        return arrays.Upload(bytes, stream.get());
      };
      memory.download = [&](const void* data, uint64_t bytes) {
        std::string read(bytes, '\0');
        OrDie(cudaMemcpyAsync(read.data(), data, bytes, cudaMemcpyDeviceToHost,
                              stream.get()),
              "download");
        OrDie(cudaStreamSynchronize(stream.get()), "download");
        return read;
      };
      const auto rows_of = [&](uint64_t position) {
        return rows_.at(position);
      };
      const auto images = SamplesOf(batches[0], rows_of);
      const auto text = SamplesOf(batches[1], rows_of);
      EXPECT_EQ(ExchangeBothWays(shims[0], batches[0], images, text, memory),
                BALLAST_OK)
          << ballast_last_error();
      for (const EmbeddingSample& sample : text) {
        bool here = sample.rows == 0;
        for (const EmbeddingSample& own : images) {
          here |= own.position == sample.position;
        }
        moved_ += here ? 0 : sample.rows;
      }
      for (const ballast_batch* batch : batches) ballast_batch_release(batch);
    }
    for (ballast_shim* shim : shims) ballast_shim_destroy(shim);
  }

  void RunAll(bool nccl, uint32_t dp) {
    const auto cluster = OrDie(TestCluster::Start(
        OrDie(ParseConfig(
            EmbeddingJobConfig(
                dp, 3, 4 * dp,
                absl::StrCat("placement: split, delivery: ", GetParam())
                    .c_str()),
            "test.yaml", ::testing::TempDir())),
        1));
    const char* address = cluster->addresses()[0].c_str();
    connection_.struct_size = sizeof(connection_);
    connection_.num_servers = 1;
    connection_.servers = &address;
    // What the host makes of the same steps tells each sample's image tokens.
    for (const auto& [key, batch] : OrDie(cluster->RunRanks(0, kSteps))) {
      for (const v1::MicroBatchSchedule& each :
           batch.schedule->micro_batches()) {
        const std::vector<uint64_t> patches = SamplePatches(each);
        for (int i = 0; i < each.position_size(); ++i) {
          rows_[each.position(i)] = patches[i] / 4;
        }
      }
    }
    std::vector<ballast_communicator*> ends[2];
    for (auto& of_module : ends) {
      of_module.resize(dp);
      if (nccl) continue;
      ASSERT_EQ(ballast_communicator_in_process(BALLAST_BACKEND_CUDA, dp,
                                                of_module.data()),
                BALLAST_OK);
    }
    std::barrier<> made(dp);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < dp; ++rank) {
      threads.emplace_back([&, rank] {
        const int device = nccl ? rank : 0;
        ballast_communicator* own[2] = {ends[0][rank], ends[1][rank]};
        ballast_nccl_options options = {};
        options.struct_size = sizeof(options);
        options.device = device;
        for (int m = 0; nccl && m < 2; ++m) {
          ASSERT_EQ(ballast_communicator_nccl_meet(
                        &connection_, m == 0 ? "vision" : "language", rank, dp,
                        60, &options, &own[m]),
                    BALLAST_OK)
              << ballast_last_error();
        }
        RunRank(rank, device, own, &made);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (dp > 1) {
      EXPECT_GT(moved_, 0);
    }
  }

  std::map<uint64_t, uint64_t> rows_;  // image tokens by position
  ballast_connection connection_ = {};
  std::atomic<uint64_t> moved_ = 0;
};

TEST_P(EmbeddingsGpuTest, RanksOnOneGpu) { RunAll(false, 4); }

TEST_P(EmbeddingsGpuTest, OverNccl) { RunAll(true, DeviceCount()); }

INSTANTIATE_TEST_SUITE_P(Deliveries, EmbeddingsGpuTest,
                         ::testing::Values("direct", "exchange"));

}  // namespace
}  // namespace ballast
