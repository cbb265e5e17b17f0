#include "tests/fakes/test_job.h"

#include <filesystem>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {

TestJob GridJob(uint32_t vision_dp, uint32_t language_dp,
                const std::string& delivery, const std::string& balance,
                const std::string& layout) {
  const uint32_t grid = std::lcm(vision_dp, language_dp);
  TestJob job;
  job.batch = absl::StrCat("global: ", 8 * grid, ", micro: ", 4 * grid);
  job.modules = absl::StrCat("vision: {dp: ", vision_dp, layout,
                             "}, language: {dp: ", language_dp, layout, "}");
  job.balance = absl::StrCat("delivery: ", delivery, balance);
  return job;
}

LoadedConfig ParseJob(const TestJob& job, const std::string& folder) {
  auto config = ParseConfig(
      absl::StrCat("sources: [", job.sources, "]\nmodel: {", job.model,
                   "}\nbatch: {", job.batch, "}\ntopology: {modules: {",
                   job.modules, "}}\nbalance: {", job.balance,
                   "}\nserve: {threads: 2, memory: 64MiB, listen: "
                   "['unix:/replaced']",
                   job.serve, "}\n", job.more),
      "test.yaml", folder);
  EXPECT_TRUE(config.ok()) << config.status();
  return *std::move(config);
}

std::unique_ptr<TestCluster> StartCluster(const LoadedConfig& config,
                                          int servers) {
  auto cluster = TestCluster::Start(config, servers);
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

TestCluster::Batches RunJob(const LoadedConfig& config, uint64_t steps,
                            int servers) {
  auto batches = StartCluster(config, servers)->RunRanks(0, steps);
  EXPECT_TRUE(batches.ok()) << batches.status();
  return *std::move(batches);
}

std::string FormulaFolder(
    const std::string& name, uint32_t samples,
    const std::function<uint32_t(uint32_t sample)>& images) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  if (std::filesystem::create_directories(folder)) {
    const absl::Status written =
        WriteFormulaDataset(folder + "/docs-0.tar", samples, images);
    EXPECT_TRUE(written.ok()) << written;
  }
  return folder;
}

}  // namespace ballast
