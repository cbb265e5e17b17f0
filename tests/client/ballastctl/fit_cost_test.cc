// fit-cost against a scripted server, whose times follow a formula.
#include "client/ballastctl/commands.h"

#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/ballastctl/cost_fit.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class FitCostCommandTest : public ::testing::Test {
 protected:
  void Serve(const SyntheticJob& job) {
    v1::AttachResponse attach;
    attach.mutable_fingerprint()->set_hash(kSyntheticFingerprint);
    *attach.mutable_job() = SyntheticJobMessage(job);
    server_->SetAttach(attach);
    server_->SetSchedule(
        [job](uint64_t step) { return SyntheticSchedule(job, step); });
  }

  // Times of all ranks of the module in steps [first, last]:
  // linear*sum(n) + quadratic*sum(n*n) + constant.
  void Report(const SyntheticJob& job, v1::Module module, uint64_t first,
              uint64_t last, double linear, double quadratic, double constant) {
    const uint32_t dp =
        module == v1::MODULE_VISION ? job.vision_dp : job.language_dp;
    for (uint64_t step = first; step <= last; ++step) {
      for (uint32_t m = 0; m < job.micro_batches; ++m) {
        for (uint32_t rank = 0; rank < dp; ++rank) {
          v1::StepTiming& timing = *timings_.add_timings();
          timing.mutable_role()->set_module(module);
          timing.mutable_role()->set_dp_rank(rank);
          timing.set_step(step);
          timing.set_micro_batch(m);
          CostObservations owned;
          ASSERT_TRUE(
              AddObservations(SyntheticSchedule(job, step), {timing}, &owned)
                  .ok());
          const CostObservation& each = owned[module][0];
          timing.set_milliseconds(linear * each.sum +
                                  quadratic * each.sum_of_squares + constant);
        }
      }
    }
    server_->SetTimings(timings_);
  }

  absl::Status Run(const FitCostOptions& options) {
    out_.str("");
    return PrintCostFit(client_.get(), options, &out_);
  }

  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
  v1::GetTimingsResponse timings_;
  std::ostringstream out_;
};

TEST_F(FitCostCommandTest, FitsEveryModule) {
  SyntheticJob job;
  job.uneven = true;
  Serve(job);
  Report(job, v1::MODULE_VISION, 3, 12, 0.25, 0.001, 2);
  Report(job, v1::MODULE_LANGUAGE, 5, 14, 0.5, 0, 1);
  FitCostOptions options;
  options.json = true;
  const absl::Status status = Run(options);
  ASSERT_TRUE(status.ok()) << status;
  const json found = json::parse(out_.str());
  EXPECT_EQ(found["address"], server_->address());
  EXPECT_EQ(found["first_step"], 3);
  EXPECT_EQ(found["last_step"], 14);
  const json& vision = found["modules"]["vision"];
  EXPECT_EQ(vision["n"], "patches");
  EXPECT_EQ(vision["observations"], 40);
  EXPECT_NEAR(vision["linear"], 0.25, 1e-9);
  EXPECT_NEAR(vision["quadratic"], 0.001, 1e-12);
  EXPECT_NEAR(vision["constant"], 2, 1e-8);
  EXPECT_LT(vision["rms_ms"], 1e-9);
  EXPECT_NEAR(vision["r_squared"], 1, 1e-12);
  EXPECT_EQ(vision["confounded"], json::array());
  const json& language = found["modules"]["language"];
  EXPECT_EQ(language["n"], "tokens");
  EXPECT_NEAR(language["linear"], 0.5, 1e-9);
  EXPECT_EQ(language["left_out"], json({"quadratic"}));
  EXPECT_EQ(found["cost"]["vision"]["linear"], vision["linear"]);
  EXPECT_EQ(found["cost"]["vision"]["quadratic"], vision["quadratic"]);
  EXPECT_EQ(found["cost"]["language"]["quadratic"], 0);

  ASSERT_TRUE(Run({}).ok());
  EXPECT_THAT(out_.str(),
              HasSubstr("balance:\n"
                        "  cost_changes:\n"
                        "    - step: 15\n"
                        "      cost:\n"
                        "        vision: {linear: 0.25, quadratic: 0.001}\n"
                        "        language: {linear: 0.5, quadratic: 0}\n"));
  EXPECT_THAT(out_.str(), HasSubstr("R^2"));
  EXPECT_THAT(out_.str(), HasSubstr("1.0000"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("cannot tell")));
}

TEST_F(FitCostCommandTest, RequestsOnlyTheGivenModuleAndSteps) {
  SyntheticJob job;
  job.language_dp = 0;
  Serve(job);
  Report(job, v1::MODULE_VISION, 3, 12, 0.25, 0.001, 2);
  FitCostOptions options;
  options.module = v1::MODULE_VISION;
  options.from_step = 3;
  ASSERT_TRUE(Run(options).ok());
  ASSERT_EQ(server_->timings_requests().size(), 1u);
  EXPECT_EQ(server_->timings_requests()[0].from_step(), 3u);
  EXPECT_EQ(server_->timings_requests()[0].module(), v1::MODULE_VISION);
  // A module that the job does not have costs nothing.
  EXPECT_THAT(out_.str(), HasSubstr("language: {linear: 0, quadratic: 0}\n"));
}

TEST_F(FitCostCommandTest, WarnsWhatTheDataCannotTell) {
  SyntheticJob job;
  job.micro_batches = 1;
  Serve(job);
  Report(job, v1::MODULE_VISION, 1, 1, 1, 0, 0);
  Report(job, v1::MODULE_LANGUAGE, 1, 10, 0, 0, 4);
  for (v1::StepTiming& timing : *timings_.mutable_timings()) {
    // Always the same rank and step: all observations are equal.
    if (timing.role().module() != v1::MODULE_LANGUAGE) continue;
    timing.set_step(1);
    timing.mutable_role()->set_dp_rank(0);
  }
  server_->SetTimings(timings_);
  ASSERT_TRUE(Run({}).ok());
  EXPECT_THAT(out_.str(), HasSubstr("language: the data cannot separate these "
                                    "terms: linear, quadratic, constant."));
  EXPECT_THAT(out_.str(),
              HasSubstr("vision: found 2 timings, wanted at least 8"));
  EXPECT_THAT(out_.str(), HasSubstr("# vision: not fitted"));
  FitCostOptions options;
  options.json = true;
  ASSERT_TRUE(Run(options).ok());
  const json found = json::parse(out_.str());
  EXPECT_THAT(found["modules"]["vision"]["error"].get<std::string>(),
              HasSubstr("wanted at least 8"));
  EXPECT_TRUE(found["modules"]["language"]["r_squared"].is_null());
  EXPECT_FALSE(found["cost"].contains("vision"));
}

TEST_F(FitCostCommandTest, Refusals) {
  SyntheticJob job;
  Serve(job);
  EXPECT_EQ(Run({}).code(), absl::StatusCode::kNotFound);
  Report(job, v1::MODULE_VISION, 1, 1, 1, 0, 0);
  EXPECT_THAT(std::string(Run({}).message()),
              HasSubstr("vision: found 4 timings, wanted at least 8"));
  timings_.mutable_timings(0)->set_micro_batch(9);
  server_->SetTimings(timings_);
  EXPECT_THAT(std::string(Run({}).message()),
              HasSubstr("vision rank 0 in step 1 micro-batch 9 does not fit "
                        "the schedule of step 1 of 2 micro-batches; "
                        "--from-step 2 goes by later steps only"));
  server_->SetSchedule(
      [](uint64_t) { return absl::OutOfRangeError("no such step"); });
  EXPECT_THAT(std::string(Run({}).message()), HasSubstr("no such step"));
}

}  // namespace
}  // namespace ballast
