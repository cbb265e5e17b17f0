#ifndef BALLAST_TESTS_TRAINER_SHIM_C_API_C_API_FIXTURE_H_
#define BALLAST_TESTS_TRAINER_SHIM_C_API_C_API_FIXTURE_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/mutex.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "tests/trainer_shim/c_api/c_batch.h"
#include "tests/trainer_shim/c_api/c_rank.h"
#include "trainer_shim/c_api/c_api.h"

namespace ballast {

// Number of ranks of each module.
inline constexpr uint32_t kRanks = 2;

// `language`: the module's sizes other than dp. `more`: further lines.
inline LoadedConfig MakeConfig(const std::string& language = "",
                               const std::string& more = "") {
  const std::string directory = ::testing::TempDir() + "/c_api";
  std::filesystem::create_directories(directory);
  EXPECT_TRUE(WriteFormulaDataset(directory + "/docs.tar", 40).ok());
  auto config = ParseConfig(
      "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
      "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
      "batch: {global: 16, micro: 8}\n"
      "topology: {modules: {vision: {dp: 2}, language: {dp: 2" +
          language + "}}}\n" + more +
          "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n",
      "test.yaml", directory);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

// A job on real servers, whose ranks run C code on the host.
class CApiTest : public ::testing::Test {
 protected:
  CApiTest() { Start(MakeConfig()); }

  void Start(const LoadedConfig& config) {
    auto cluster = TestCluster::Start(config, 1);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    addresses_.clear();
    cluster_ = *std::move(cluster);
    for (const std::string& address : cluster_->addresses()) {
      addresses_.push_back(address.c_str());
    }
    connection_.struct_size = sizeof(connection_);
    connection_.num_servers = addresses_.size();
    connection_.servers = addresses_.data();
  }

  ballast_shim_options Options(int module, uint32_t rank) {
    ballast_shim_options options = {};
    options.struct_size = sizeof(options);
    options.module = module;
    options.dp_rank = rank;
    options.connection = &connection_;
    options.steps = 2;
    return options;
  }

  // Runs every rank of every module; `change` may change its options.
  using Change = std::function<void(ballast_shim_options*)>;
  std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, CBatch> RunAll(
      const Change& change) {
    struct Context {
      Mutex mutex;
      std::map<std::tuple<uint64_t, uint32_t, int, uint32_t>, CBatch> batches
          ABSL_GUARDED_BY(mutex);
    } context;
    std::vector<std::thread> threads;
    for (int module : {BALLAST_MODULE_VISION, BALLAST_MODULE_LANGUAGE}) {
      ballast_communicator* ends[kRanks] = {};
      EXPECT_EQ(
          ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
          BALLAST_OK);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        ballast_shim_options options = Options(module, rank);
        options.communicator = ends[rank];
        change(&options);
        threads.emplace_back([options, &context] {
          const int end = c_rank_run(
              &options, nullptr,
              [](void* into, const ballast_batch* batch) {
                auto* context = static_cast<Context*>(into);
                CBatch read = ReadBatch(batch, nullptr, nullptr);
                MutexLock lock(&context->mutex);
                const std::tuple<uint64_t, uint32_t, int, uint32_t> key = {
                    read.info.step, read.info.micro_batch, read.info.module,
                    read.info.dp_rank};
                context->batches[key] = std::move(read);
              },
              &context);
          EXPECT_EQ(end, BALLAST_OUT_OF_RANGE) << ballast_last_error();
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(&context.mutex);
    return std::move(context.batches);
  }

  // A shim of one rank, in a group whose other ranks do nothing.
  ballast_shim* MakeShim(ballast_shim_options options) {
    ballast_communicator* ends[kRanks] = {};
    EXPECT_EQ(
        ballast_communicator_in_process(BALLAST_BACKEND_HOST, kRanks, ends),
        BALLAST_OK);
    options.communicator = ends[options.dp_rank];
    others_.push_back(ends[1 - options.dp_rank]);
    ballast_shim* shim = nullptr;
    EXPECT_EQ(ballast_shim_create(&options, &shim), BALLAST_OK)
        << ballast_last_error();
    return shim;
  }
  ~CApiTest() override {
    for (ballast_communicator* end : others_) ballast_communicator_destroy(end);
  }

  std::unique_ptr<TestCluster> cluster_;
  std::vector<const char*> addresses_;
  ballast_connection connection_ = {};
  std::vector<ballast_communicator*> others_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_C_API_C_API_FIXTURE_H_
