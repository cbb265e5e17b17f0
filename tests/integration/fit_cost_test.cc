// From reported timings to coefficients, with real servers and real schedules.

#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/ballastctl/commands.h"
#include "client/ballastctl/cost_fit.h"
#include "client/loader_client.h"
#include "server/config/config_loader.h"
#include "tests/fakes/formula_dataset.h"
#include "tests/fakes/test_cluster.h"
#include "trainer_shim/ballast_rank/world.h"

namespace ballast {
namespace {

using nlohmann::json;

constexpr char kConfig[] =
    "sources: [{name: docs, format: webdataset, path: docs.tar}]\n"
    "model: {max_pixels: 200704}\n"
    "batch: {global: 16, micro: 8}\n"
    "topology: {modules: {vision: {dp: 2}, language: {dp: 4}}}\n"
    "serve: {threads: 2, memory: 64MiB, listen: ['unix:/replaced']}\n";

class FitCostTest : public ::testing::Test {
 protected:
  FitCostTest() {
    const std::string directory = ::testing::TempDir() + "/fit_cost";
    std::filesystem::create_directories(directory);
    EXPECT_TRUE(WriteFormulaDataset(directory + "/docs.tar", 50).ok());
    const auto config =
        ParseConfig(absl::StrCat(kConfig, "balance: {delivery: off}\n"),
                    "test.yaml", directory);
    EXPECT_TRUE(config.ok()) << config.status();
    auto cluster = TestCluster::Start(*config);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    client_ = LoaderClient::Create(cluster_->addresses()[0]);
    attached_ = *client_->Attach({}, {});
  }

  json Fit() {
    FitCostOptions options;
    options.json = true;
    std::ostringstream out;
    const absl::Status status = PrintCostFit(client_.get(), options, &out);
    EXPECT_TRUE(status.ok()) << status;
    return json::parse(out.str(), nullptr, false);
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<LoaderClient> client_;
  v1::AttachResponse attached_;
};

TEST_F(FitCostTest, FindsTheRanksCost) {
  for (uint64_t step = 100; step < 110; ++step) {
    const auto schedule = client_->GetSchedule(step);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    std::vector<v1::StepTiming> timings;
    for (const v1::Job::ModuleSize& module : attached_.job().modules()) {
      for (uint32_t rank = 0; rank < module.dp(); ++rank) {
        for (int m = 0; m < schedule->micro_batches_size(); ++m) {
          v1::StepTiming& timing = timings.emplace_back();
          timing.mutable_role()->set_module(module.module());
          timing.mutable_role()->set_dp_rank(rank);
          timing.set_step(step);
          timing.set_micro_batch(m);
          CostObservations owned;
          ASSERT_TRUE(AddObservations(*schedule, {timing}, &owned).ok());
          const CostObservation& each = owned[module.module()][0];
          const bool vision = module.module() == v1::MODULE_VISION;
          timing.set_milliseconds(vision ? 0.02 * each.sum + 3
                                         : 0.1 * each.sum +
                                               0.0005 * each.sum_of_squares);
        }
      }
    }
    ASSERT_TRUE(client_->Report(timings, attached_.fingerprint().hash()).ok());
  }
  const json found = Fit();
  const json& vision = found["modules"]["vision"];
  EXPECT_EQ(vision["observations"], 10 * 2 * 2);
  EXPECT_NEAR(vision["linear"], 0.02, 1e-9);
  EXPECT_NEAR(vision["quadratic"], 0, 1e-12);
  EXPECT_NEAR(vision["constant"], 3, 1e-6);
  const json& language = found["modules"]["language"];
  EXPECT_NEAR(language["linear"], 0.1, 1e-9);
  EXPECT_NEAR(language["quadratic"], 0.0005, 1e-12);
  EXPECT_NEAR(language["constant"], 0, 1e-6);

  // The printed lines must be a valid configuration.
  std::ostringstream out;
  ASSERT_TRUE(PrintCostFit(client_.get(), {}, &out).ok());
  const size_t lines = out.str().find("balance:\n");
  ASSERT_NE(lines, std::string::npos) << out.str();
  const auto pasted =
      ParseConfig(absl::StrCat(kConfig, out.str().substr(lines)), "pasted.yaml",
                  ::testing::TempDir());
  ASSERT_TRUE(pasted.ok()) << pasted.status();
  ASSERT_EQ(pasted->config.balance().cost_changes_size(), 1);
  const v1::Balance::CostChange& change =
      pasted->config.balance().cost_changes(0);
  EXPECT_EQ(change.step(), 110u);
  EXPECT_EQ(change.cost().vision().linear(), 0.02);
  EXPECT_EQ(change.cost().vision().quadratic(), 0);
  EXPECT_EQ(change.cost().language().linear(), 0.1);
  EXPECT_EQ(change.cost().language().quadratic(), 0.0005);
}

TEST_F(FitCostTest, RanksReportWithoutAGpu) {
  WorldOptions options;
  options.servers = cluster_->addresses();
  options.steps = 4;
  options.report_timings = true;
  LostReports lost;  // servers may be busy with other tests
  options.lost_reports = &lost;
  const auto roles = GetRoles(attached_.job(), options);
  ASSERT_TRUE(roles.ok()) << roles.status();
  const absl::Status status =
      RunWorld(attached_.job(), attached_.fingerprint(), *roles, options,
               LoaderClient::Create, [](const RankBatch&) {});
  ASSERT_TRUE(status.ok()) << status;
  const json found = Fit();
  const uint64_t vision = found["modules"]["vision"]["observations"];
  const uint64_t language = found["modules"]["language"]["observations"];
  EXPECT_LE(vision, 4u * 2 * 2);
  EXPECT_LE(language, 4u * 2 * 4);
  EXPECT_GE(vision + language + lost.count(), 4u * 2 * (2 + 4))
      << lost.Warning();
}

}  // namespace
}  // namespace ballast
