#include "client/ballastctl/cost_fit.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/ballastctl/commands.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

// Observation i of a formula, with sums that are independent of each other.
CostObservation Formula(int i, double linear, double quadratic,
                        double constant) {
  CostObservation each;
  each.sum = i * 37 % 101 * 50 + 200;
  each.sum_of_squares = i * 53 % 89 * 4000 + 10000;
  each.milliseconds =
      linear * each.sum + quadratic * each.sum_of_squares + constant;
  return each;
}

std::vector<CostObservation> Formula(double linear, double quadratic,
                                     double constant, double noise = 0) {
  std::vector<CostObservation> all;
  for (int i = 0; i < 60; ++i) {
    all.push_back(Formula(i, linear, quadratic, constant));
    all.back().milliseconds += noise * (i * 29 % 17 - 8);
  }
  return all;
}

CostFit Fit(const std::vector<CostObservation>& observations) {
  const auto fit = FitCost(observations);
  EXPECT_TRUE(fit.ok()) << fit.status();
  return fit.ok() ? *fit : CostFit();
}

void ExpectCoefficients(const CostFit& fit, double linear, double quadratic,
                        double constant) {
  const double wanted[] = {linear, quadratic, constant};
  for (int term = 0; term < kCostTerms; ++term) {
    EXPECT_NEAR(fit.coefficients[term], wanted[term],
                1e-9 * std::abs(wanted[term]))
        << CostTermName(static_cast<CostTerm>(term));
  }
}

TEST(FitCostTest, FindsTheFormula) {
  for (const double linear : {0.0, 3e-4}) {
    for (const double quadratic : {0.0, 5e-11, 2e-6}) {
      for (const double constant : {0.0, 12.5}) {
        if (linear + quadratic + constant == 0) continue;
        SCOPED_TRACE(testing::Message()
                     << linear << " " << quadratic << " " << constant);
        const CostFit fit = Fit(Formula(linear, quadratic, constant));
        ExpectCoefficients(fit, linear, quadratic, constant);
        EXPECT_EQ(fit.observations, 60u);
        EXPECT_LT(fit.rms, 1e-9);
        EXPECT_THAT(fit.confounded, IsEmpty());
        if (linear + quadratic == 0) {
          EXPECT_FALSE(fit.r_squared.has_value());
        } else {
          EXPECT_NEAR(*fit.r_squared, 1, 1e-12);
        }
      }
    }
  }
}

// Coefficients, RMS and R^2 from numpy.linalg.lstsq 2.4.6.
TEST(FitCostTest, AgreesWithNumpyOnNoisyTimes) {
  const CostFit fit = Fit(Formula(0.01, 2e-6, 5, 0.05));
  ExpectCoefficients(fit, 0.00998976744664329, 2.1069279281452583e-06,
                     5.009749642751534);
  EXPECT_NEAR(fit.rms, 0.24653282303349272, 1e-12);
  EXPECT_NEAR(*fit.r_squared, 0.9997135838602075, 1e-12);
  EXPECT_THAT(fit.left_out, IsEmpty());
  EXPECT_THAT(fit.confounded, IsEmpty());
}

// lstsq over all columns gives a quadratic term of -1.89e-6; these are its
// results without that column.
TEST(FitCostTest, ANegativeTermIsLeftOutAndTheRestFittedAgain) {
  const CostFit fit = Fit(Formula(0.01, -2e-6, 5, 0.05));
  ExpectCoefficients(fit, 0.009987303408365346, 0, 4.659940629782412);
  EXPECT_EQ(fit.coefficients[kQuadratic], 0);
  EXPECT_NEAR(fit.rms, 0.31562559477807206, 1e-12);
  EXPECT_NEAR(*fit.r_squared, 0.999530036789989, 1e-12);
  EXPECT_THAT(fit.left_out, ElementsAre(kQuadratic));
}

// Times that fall with the load: only a constant remains, the mean.
TEST(FitCostTest, TimesThatFallLeaveTheMean) {
  std::vector<CostObservation> all;
  for (int i = 0; i < 11; ++i) all.push_back({1.0 + i, 1.0 + i * i, 30.0 - i});
  const CostFit fit = Fit(all);
  ExpectCoefficients(fit, 0, 0, 25);
  EXPECT_NEAR(*fit.r_squared, 0, 1e-12);
  EXPECT_NEAR(fit.rms, std::sqrt(10.0), 1e-12);  // of -5, …, 5
  EXPECT_THAT(fit.left_out, ElementsAre(kLinear, kQuadratic));
}

// Samples of one size m: the sum of squares is m times the sum, so any mix of
// linear and quadratic explains the times equally well. The linear term gets
// everything.
TEST(FitCostTest, SamplesOfOneSizeConfoundLinearAndQuadratic) {
  constexpr double kSize = 1024;
  std::vector<CostObservation> all;
  for (int i = 1; i <= 20; ++i) {
    const double sum = i * kSize;
    all.push_back(
        {sum, sum * kSize, 2e-3 * sum + 1e-6 * sum * kSize + 7 + i % 2 * 0.01});
  }
  const CostFit fit = Fit(all);
  EXPECT_THAT(fit.confounded, ElementsAre(kLinear, kQuadratic));
  EXPECT_THAT(fit.left_out, ElementsAre(kQuadratic));
  EXPECT_NEAR(fit.coefficients[kLinear], 2e-3 + 1e-6 * kSize, 1e-6);
}

// Equal sums everywhere (perfect balance): linear and constant cannot be told
// apart.
TEST(FitCostTest, EqualLoadsConfoundLinearAndConstant) {
  std::vector<CostObservation> all;
  for (int i = 0; i < 20; ++i) {
    const double squares = 1e6 + i * 7 % 20 * 1e4;
    all.push_back({5000, squares, 10 + 5e-6 * squares});
  }
  const CostFit fit = Fit(all);
  EXPECT_THAT(fit.confounded, ElementsAre(kLinear, kConstant));
  EXPECT_THAT(fit.left_out, ElementsAre(kConstant));
  ExpectCoefficients(fit, 10.0 / 5000, 5e-6, 0);
}

TEST(FitCostTest, EqualObservationsConfoundEverything) {
  const CostFit fit = Fit(std::vector<CostObservation>(10, {2000, 1e6, 12}));
  EXPECT_THAT(fit.confounded, ElementsAre(kLinear, kQuadratic, kConstant));
  ExpectCoefficients(fit, 12.0 / 2000, 0, 0);
  EXPECT_FALSE(fit.r_squared.has_value());
}

// Nearly dependent terms: their difference is lost in the noise.
TEST(FitCostTest, NoiseThatDrownsTheDifferenceConfounds) {
  const auto make = [](double noise) {
    std::vector<CostObservation> all;
    for (int i = 0; i < 40; ++i) {
      const double sum = 1000 * (i % 10 + 1);
      const double squares = sum * 1000 * (1 + 1e-4 * (i * 7 % 5));
      all.push_back(
          {sum, squares,
           1e-3 * sum + 1e-6 * squares + 1 + noise * (i * 29 % 17 - 8)});
    }
    return all;
  };
  EXPECT_THAT(Fit(make(0)).confounded, IsEmpty());
  ExpectCoefficients(Fit(make(0)), 1e-3, 1e-6, 1);
  EXPECT_THAT(Fit(make(0.05)).confounded, ElementsAre(kLinear, kQuadratic));
}

// The scale of n and of the times does not matter.
TEST(FitCostTest, ScalesMakeNoDifference) {
  for (const double n : {1e-3, 1.0, 1e6}) {
    for (const double ms : {1e-6, 1.0, 1e6}) {
      std::vector<CostObservation> all = Formula(0.01, 2e-6, 5, 0.05);
      for (CostObservation& each : all) {
        each.sum *= n;
        each.sum_of_squares *= n * n;
        each.milliseconds *= ms;
      }
      const CostFit fit = Fit(all);
      ExpectCoefficients(fit, 0.00998976744664329 * ms / n,
                         2.1069279281452583e-06 * ms / n / n,
                         5.009749642751534 * ms);
      EXPECT_THAT(fit.confounded, IsEmpty());
    }
  }
}

TEST(FitCostTest, OwningNothingLeavesTheConstant) {
  const CostFit fit = Fit(std::vector<CostObservation>(8, {0, 0, 3}));
  ExpectCoefficients(fit, 0, 0, 3);
  EXPECT_THAT(fit.confounded, IsEmpty());
  ExpectCoefficients(Fit(std::vector<CostObservation>(8)), 0, 0, 0);
}

TEST(FitCostTest, RefusesTooFewAndNonFiniteObservations) {
  EXPECT_THAT(FitCost(std::vector<CostObservation>(7)).status().message(),
              HasSubstr("found 7 timings, wanted at least 8"));
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    auto all = Formula(1, 0, 0);
    all[7].milliseconds = bad;
    EXPECT_EQ(FitCost(all).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(AddObservationsTest, SumsWhatEachRankOwns) {
  SyntheticJob job;
  job.vision_dp = 2;
  job.language_dp = 4;
  job.uneven = true;
  const v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  std::vector<v1::StepTiming> timings;
  for (uint32_t m = 0; m < job.micro_batches; ++m) {
    for (uint32_t r = 0; r < 2; ++r) {
      timings.push_back(GetTiming(v1::MODULE_VISION, r, 3, m, m * 10 + r));
    }
  }
  timings.push_back(GetTiming(v1::MODULE_LANGUAGE, 3, 3, 1, 0.5));
  CostObservations found;
  ASSERT_TRUE(AddObservations(schedule, timings, &found).ok());
  ASSERT_EQ(found[v1::MODULE_VISION].size(), timings.size() - 1);
  ASSERT_EQ(found[v1::MODULE_LANGUAGE].size(), 1u);

  for (size_t i = 0; i < timings.size(); ++i) {
    const bool vision = i + 1 < timings.size();
    const auto& micro_batch = schedule.micro_batches(timings[i].micro_batch());
    const auto& module = micro_batch.modules(vision ? 0 : 1);
    double sum = 0, squares = 0;
    for (int s = 0, image = 0; s < micro_batch.tokens_size(); ++s) {
      const bool owned = module.owner(s) == timings[i].role().dp_rank();
      const auto add = [&](double n) {
        if (!owned) return;
        sum += n;
        squares += n * n;
      };
      // Vision towers attend within an image.
      for (uint32_t k = 0; k < micro_batch.images(s); ++k, ++image) {
        if (vision) add(micro_batch.grid_h(image) * micro_batch.grid_w(image));
      }
      if (!vision) add(micro_batch.tokens(s));
    }
    const CostObservation& each =
        vision ? found[v1::MODULE_VISION][i] : found[v1::MODULE_LANGUAGE][0];
    EXPECT_EQ(each.sum, sum);
    EXPECT_EQ(each.sum_of_squares, squares);
    EXPECT_EQ(each.milliseconds, timings[i].milliseconds());
    EXPECT_GT(each.sum, 0);
  }
}

// Ranks that share a pack compute equal parts of its samples.
TEST(AddObservationsTest, DividesWhatRanksShare) {
  SyntheticJob job;
  job.vision_dp = 0;
  job.language_dp = 4;
  v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  v1::MicroBatchSchedule& columns = *schedule.mutable_micro_batches(0);
  v1::ModuleSchedule& language = *columns.mutable_modules(0);
  double sum = 0, squares = 0;
  for (int i = 0; i < columns.tokens_size(); ++i) {
    language.set_owner(i, 0);
    language.add_pack_ranks(4);
    const double tokens = columns.tokens(i);
    sum += tokens / 4;
    squares += tokens * tokens / 4;
  }
  std::vector<v1::StepTiming> timings;
  for (uint32_t r = 0; r < 4; ++r) {
    timings.push_back(GetTiming(v1::MODULE_LANGUAGE, r, 3, 0, 1));
  }
  CostObservations found;
  ASSERT_TRUE(AddObservations(schedule, timings, &found).ok());
  ASSERT_EQ(found[v1::MODULE_LANGUAGE].size(), 4u);
  for (const CostObservation& each : found[v1::MODULE_LANGUAGE]) {
    EXPECT_DOUBLE_EQ(each.sum, sum);
    EXPECT_DOUBLE_EQ(each.sum_of_squares, squares);
  }
}

TEST(AddObservationsTest, RefusesTimingsThatDoNotFit) {
  SyntheticJob job;
  job.vision_dp = 0;
  const v1::StepSchedule schedule = SyntheticSchedule(job, 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const v1::StepTiming& timing :
       {GetTiming(v1::MODULE_VISION, 0, 3, 0, 1),
        GetTiming(v1::MODULE_UNSPECIFIED, 0, 3, 0, 1),
        GetTiming(v1::MODULE_LANGUAGE, 2, 3, 0, 1),
        GetTiming(v1::MODULE_LANGUAGE, 0, 4, 0, 1),
        GetTiming(v1::MODULE_LANGUAGE, 0, 3, 2, 1),
        GetTiming(v1::MODULE_LANGUAGE, 0, 3, 0, -1),
        GetTiming(v1::MODULE_LANGUAGE, 0, 3, 0, nan)}) {
    CostObservations found;
    EXPECT_EQ(AddObservations(schedule, {timing}, &found).code(),
              absl::StatusCode::kInvalidArgument)
        << timing.DebugString();
  }
}

// A model attends within each of a pair's two sequences.
TEST(AddObservationsTest, SquaresTheSequencesOfPairs) {
  v1::StepSchedule schedule;
  v1::MicroBatchSchedule& columns = *schedule.add_micro_batches();
  v1::ModuleSchedule& language = *columns.add_modules();
  language.set_module(v1::MODULE_LANGUAGE);
  language.add_load_after(0);
  for (const uint32_t first : {3, 0}) {
    columns.add_tokens(10);
    columns.add_first_tokens(first);
    columns.add_images(0);
    columns.add_slot(0);
    language.add_owner(0);
  }
  v1::StepTiming timing;
  timing.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  timing.set_milliseconds(1);
  CostObservations found;
  ASSERT_TRUE(AddObservations(schedule, {timing}, &found).ok());
  const CostObservation& each = found[v1::MODULE_LANGUAGE].at(0);
  EXPECT_EQ(each.sum, 20);
  EXPECT_EQ(each.sum_of_squares, 3 * 3 + 7 * 7 + 10 * 10);
}

}  // namespace
}  // namespace ballast
