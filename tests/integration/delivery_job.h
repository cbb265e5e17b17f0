#ifndef BALLAST_TESTS_INTEGRATION_DELIVERY_JOB_H_
#define BALLAST_TESTS_INTEGRATION_DELIVERY_JOB_H_

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"

namespace ballast {

inline constexpr uint32_t kSamples = 50;
inline constexpr uint64_t kSteps = 3;

// The formula dataset, written once for all tests.
inline const std::string& Dataset() {
  static const std::string* directory = [] {
    auto* path = new std::string(::testing::TempDir() + "/formula");
    std::filesystem::create_directories(*path);
    EXPECT_TRUE(WriteFormulaDataset(*path + "/docs-000000.tar", kSamples).ok());
    return path;
  }();
  return *directory;
}

// `balance` and `more` are additional keys of that section and of the top
// level.
inline LoadedConfig MakeConfig(uint32_t vision_dp, uint32_t language_dp,
                               const std::string& delivery,
                               const std::string& more = "",
                               const std::string& balance = "") {
  const uint32_t grid = std::lcm(vision_dp, language_dp);
  const auto config = ParseConfig(
      absl::StrCat("sources: [{name: docs, format: webdataset, path: "
                   "'docs-*.tar'}]\n"
                   "model: {profile: qwen2_5_vl, max_pixels: 200704}\n"
                   "batch: {global: ",
                   8 * grid, ", micro: ", 4 * grid,
                   "}\n"
                   "topology: {modules: {vision: {dp: ",
                   vision_dp, "}, language: {dp: ", language_dp,
                   "}}}\n"
                   "balance: {delivery: ",
                   delivery, balance,
                   "}\n"
                   "serve: {threads: 2, memory: 64MiB, listen: "
                   "['unix:/replaced']}\n",
                   more),
      "test.yaml", Dataset());
  EXPECT_TRUE(config.ok()) << config.status();
  return *config;
}

inline TestCluster::Batches RunJob(const LoadedConfig& config,
                                   int servers = 1) {
  auto cluster = TestCluster::Start(config, servers);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  if (!cluster.ok()) return {};
  auto batches = (*cluster)->RunRanks(0, kSteps);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return batches.ok() ? *std::move(batches) : TestCluster::Batches();
}

}  // namespace ballast

#endif  // BALLAST_TESTS_INTEGRATION_DELIVERY_JOB_H_
