// MetricsService of a real server whose sources are in memory.
#include "server/serve/service/metrics_service.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/loader_service.grpc.pb.h"
#include "server/schedule/step_plan.h"
#include "server/serve/service/server.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/server/serve/service/puller.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kCredit = 1 << 30;

class MetricsServiceTest : public ::testing::Test {
 protected:
  MetricsServiceTest() {
    OpenedJob job;
    job.config = JobConfig(2, 2, 16, 8);
    job.config.mutable_serve()->clear_listen();
    job.config.mutable_serve()->add_listen("127.0.0.1:0");
    job.config.mutable_serve()->set_max_bad_samples(100);
    job.config.mutable_order()->set_epochs(20);
    job.tokenizer = *MakeTokenizer("bytes");
    job.text = *ModelText::Create(job.config.model(), job.tokenizer.get());
    auto source = std::make_unique<FakeSampleSource>(job.config, 32);
    source_ = source.get();
    job.scheduler = *Scheduler::Create(job.config, {&source->index()});
    scheduler_ = *Scheduler::Create(job.config, {&source->index()});
    servers_ = *FindServersOfRanks(job.config);
    job.sources.push_back(std::move(source));
    server_ = *LoaderServer::Start(std::move(job));
    const auto channel = grpc::CreateChannel(
        server_->addresses()[0], grpc::InsecureChannelCredentials());
    loader_ = v1::LoaderService::NewStub(channel);
    metrics_ = v1::MetricsService::NewStub(channel);
  }

  // The pure function's balance of a step.
  v1::StepBalance Expected(uint64_t step) const {
    const v1::Model& model = scheduler_->job().model();
    return ballast::GetBalance(*scheduler_->Schedule(step), servers_,
                               {model.patch(), model.position_axes()});
  }

  // Pulls all blocks of `steps` steps of one role. Returns their number of
  // bytes.
  uint64_t Pull(v1::Module module, uint32_t rank, uint64_t steps) {
    Puller puller(loader_.get());
    puller.Open(scheduler_->fingerprint().hash(), module, rank, steps, kCredit);
    uint64_t bytes = 0;
    while (true) {
      const std::vector<uint64_t> block = puller.NextBlock();
      if (block.empty()) return bytes;
      bytes += 8 * block.size();
    }
  }

  v1::GetStatusResponse Status() {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    EXPECT_TRUE(metrics_->GetStatus(&context, {}, &response).ok());
    return response;
  }

  grpc::Status GetBalance(const v1::GetBalanceRequest& request,
                          v1::GetBalanceResponse* response) {
    grpc::ClientContext context;
    return metrics_->GetBalance(&context, request, response);
  }

  // name{label="value",...} -> number, or count of a histogram.
  std::map<std::string, double> Stats(const std::string& prefix = "") {
    grpc::ClientContext context;
    v1::GetStatsRequest request;
    request.set_prefix(prefix);
    v1::GetStatsResponse response;
    const grpc::Status status =
        metrics_->GetStats(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, double> stats;
    for (const v1::MetricFamily& family : response.families()) {
      for (const v1::MetricFamily::Metric& metric : family.metrics()) {
        std::string name = family.name();
        for (const v1::MetricFamily::Label& label : metric.labels()) {
          absl::StrAppend(&name, " ", label.name(), "=", label.value());
        }
        EXPECT_EQ(stats.count(name), 0u) << name;
        if (metric.has_histogram()) {
          for (const uint64_t count : metric.histogram().counts()) {
            stats[name] += count;
          }
        } else {
          stats[name] = metric.number();
        }
      }
    }
    return stats;
  }

  FakeSampleSource* source_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
  ServersOfRanks servers_;
  std::unique_ptr<LoaderServer> server_;
  std::unique_ptr<v1::LoaderService::Stub> loader_;
  std::unique_ptr<v1::MetricsService::Stub> metrics_;
};

TEST_F(MetricsServiceTest, BalanceIsThePureFunctionOfTheSchedule) {
  v1::GetBalanceRequest request;
  request.set_from_step(3);
  request.set_steps(2);
  request.set_ranks(true);
  v1::GetBalanceResponse response;
  ASSERT_TRUE(GetBalance(request, &response).ok());
  ASSERT_EQ(response.steps_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(response.steps(i).SerializeAsString(),
              Expected(3 + i).SerializeAsString());
  }
  request.set_ranks(false);
  request.set_steps(0);
  response.Clear();
  ASSERT_TRUE(GetBalance(request, &response).ok());
  ASSERT_EQ(response.steps_size(), 1);
  EXPECT_THAT(response.steps(0).modules(0).load_after(), IsEmpty());
  EXPECT_EQ(response.steps(0).modules(0).samples(), 16u);
}

TEST_F(MetricsServiceTest, BalanceOfManyStepsEndsWithTheData) {
  const uint64_t end = scheduler_->job().end_step();
  ASSERT_EQ(end, 40u);  // 20 times 32 samples, 16 a step
  v1::GetBalanceRequest request;
  request.set_from_step(end - 3);
  request.set_steps(256);
  v1::GetBalanceResponse response;
  ASSERT_TRUE(GetBalance(request, &response).ok());
  EXPECT_EQ(response.steps_size(), 3);
  request.set_from_step(end);
  EXPECT_EQ(GetBalance(request, &response).error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
  request.set_from_step(UINT64_MAX);
  EXPECT_EQ(GetBalance(request, &response).error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(MetricsServiceTest, TooManyStepsAreRefused) {
  v1::GetBalanceRequest request;
  request.set_steps(257);
  v1::GetBalanceResponse response;
  const grpc::Status status = GetBalance(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("GetBalanceRequest.steps is 257, wanted at most 256"));
}

TEST_F(MetricsServiceTest, FiltersByAValidPrefix) {
  for (const std::string& prefix :
       {std::string("a b"), std::string(129, 'a')}) {
    grpc::ClientContext context;
    v1::GetStatsRequest request;
    request.set_prefix(prefix);
    v1::GetStatsResponse response;
    EXPECT_EQ(metrics_->GetStats(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  for (const auto& [name, value] : Stats("ballast_blocks_")) {
    EXPECT_EQ(name.find("ballast_blocks_"), 0u) << name;
  }
}

// The counts equal what was pulled.
TEST_F(MetricsServiceTest, CountsBuiltAndSentBlocks) {
  uint64_t bytes = 0;
  uint64_t images = 0;
  uint64_t tokens = 0;
  for (const v1::Module module : {v1::MODULE_VISION, v1::MODULE_LANGUAGE}) {
    for (uint32_t rank = 0; rank < 2; ++rank) bytes += Pull(module, rank, 2);
  }
  for (uint64_t step = 0; step < 2; ++step) {
    const v1::StepSchedule schedule = *scheduler_->Schedule(step);
    images += schedule.totals().images();
    tokens += schedule.totals().tokens();
  }
  // Prefetching may have built more blocks.
  std::map<std::string, double> stats = Stats();
  EXPECT_GE(stats["ballast_images_total use=vision"], images);
  EXPECT_EQ(stats["ballast_stage_seconds stage=decode"],
            stats["ballast_images_total use=vision"] +
                stats["ballast_images_total use=check"]);
  EXPECT_GE(stats["ballast_tokens_total"], tokens);
  EXPECT_EQ(stats["ballast_blocks_sent_total way=stream"], 16);
  EXPECT_EQ(stats["ballast_blocks_sent_total way=shared_memory"], 0);
  EXPECT_EQ(stats["ballast_sent_bytes_total way=stream"], bytes);
  EXPECT_EQ(stats["ballast_block_wait_seconds"], 16);
  EXPECT_EQ(stats["ballast_block_send_seconds"], 16);
  EXPECT_EQ(stats["ballast_memory_limit_bytes"],
            JobConfig(2, 2, 16, 8).serve().memory());
  EXPECT_EQ(stats["ballast_bad_samples source="], 0);
  EXPECT_GE(stats["ballast_schedules_computed_total"], 2);
}

TEST_F(MetricsServiceTest, ReturnsTheStepThatTrainingHasReached) {
  EXPECT_FALSE(Status().has_current_step());
  Pull(v1::MODULE_VISION, 0, 2);
  EXPECT_EQ(Status().current_step(), 1u);
  // A worker adds a step's balance a moment after its first block.
  grpc::ClientContext context;
  v1::WatchBalanceRequest request;
  request.set_steps(1);
  request.set_ranks(true);
  const auto watch = metrics_->WatchBalance(&context, request);
  v1::WatchBalanceResponse response;
  ASSERT_TRUE(watch->Read(&response));
  while (Stats("ballast_step")["ballast_step"] != 1) {
  }
  std::map<std::string, double> stats = Stats();
  const v1::StepBalance expected = Expected(1);
  const v1::ModuleBalance& vision = expected.modules(0);
  EXPECT_DOUBLE_EQ(
      stats["ballast_balance_spread_ratio module=vision when=after"],
      vision.spread_after());
  EXPECT_DOUBLE_EQ(stats["ballast_rank_load module=vision rank=1 when=before"],
                   vision.load_before(1));
  EXPECT_EQ(stats["ballast_scheduled_samples_total module=vision"], 32);
  EXPECT_EQ(
      stats["ballast_moved_bytes_total module=vision scope=within_servers"],
      Expected(0).modules(0).within_servers().bytes() +
          vision.within_servers().bytes());
}

TEST_F(MetricsServiceTest, WatchFollowsTraining) {
  grpc::ClientContext context;
  v1::WatchBalanceRequest request;
  request.set_from_step(0);
  const auto watch = metrics_->WatchBalance(&context, request);
  Pull(v1::MODULE_VISION, 0, 2);
  v1::WatchBalanceResponse response;
  for (uint64_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(watch->Read(&response));
    v1::StepBalance expected = Expected(step);
    DropRanks(&expected);
    EXPECT_EQ(response.balance().SerializeAsString(),
              expected.SerializeAsString());
  }
  // Step 2 is sent when a rank gets there, and not before. If no other rank is
  // left, the job has begun again.
  Pull(v1::MODULE_LANGUAGE, 1, 3);
  do {
    ASSERT_TRUE(watch->Read(&response));
  } while (response.balance().step() != 2);
  context.TryCancel();
  watch->Finish();
}

TEST_F(MetricsServiceTest, WatchFollowsAJobThatRestartsAtAnEarlierStep) {
  grpc::ClientContext context;
  v1::WatchBalanceRequest request;
  request.set_from_step(0);
  request.set_steps(4);
  const auto watch = metrics_->WatchBalance(&context, request);
  v1::WatchBalanceResponse response;
  Pull(v1::MODULE_VISION, 0, 3);
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.balance().step(), step);
  }
  while (Status().clients_total() != 0) {
  }
  Pull(v1::MODULE_VISION, 0, 1);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.balance().step(), 0u);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_TRUE(watch->Finish().ok());
}

TEST_F(MetricsServiceTest, DrainEndsAWatch) {
  grpc::ClientContext context;
  const auto watch = metrics_->WatchBalance(&context, {});
  Pull(v1::MODULE_VISION, 0, 1);
  v1::WatchBalanceResponse response;
  ASSERT_TRUE(watch->Read(&response));
  server_->Drain(absl::InfiniteFuture());
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(MetricsServiceTest, ListsClientsThatWaitAndThatHoldBack) {
  Puller ahead(loader_.get());
  const std::string hash = scheduler_->fingerprint().hash();
  // Without credit, a block comes when the client holds nothing, and then no
  // other.
  ahead.Open(hash, v1::MODULE_VISION, 0, 0, 0, 5);
  ASSERT_FALSE(ahead.NextBlock().empty());
  Puller behind(loader_.get());
  behind.Open(hash, v1::MODULE_VISION, 1, 0, 0, 2);
  ASSERT_FALSE(behind.NextBlock().empty());
  v1::GetStatusResponse status = Status();
  const auto both_hold_back = [&status] {
    return status.clients_size() == 2 &&
           status.clients(0).state() ==
               v1::GetStatusResponse::Client::STATE_HOLDS_BACK &&
           status.clients(1).state() ==
               v1::GetStatusResponse::Client::STATE_HOLDS_BACK;
  };
  while (!both_hold_back()) status = Status();
  EXPECT_EQ(status.clients_total(), 2u);
  EXPECT_EQ(status.clients(0).role().dp_rank(), 1u);
  EXPECT_EQ(status.clients(0).step(), 2u);
  EXPECT_EQ(status.clients(0).lag(), 3u);
  EXPECT_EQ(status.clients(0).blocks(), 1u);
  EXPECT_GT(status.clients(0).held_bytes(), 0u);
  EXPECT_FALSE(status.clients(0).shared_memory());
  EXPECT_THAT(status.clients(0).peer(), HasSubstr("127.0.0.1"));
  EXPECT_EQ(status.clients(1).lag(), 0u);
  EXPECT_EQ(Stats()["ballast_client_lag_steps"], 3);
}

TEST_F(MetricsServiceTest, CountsBadSamplesAndListsTheirReasons) {
  std::set<uint64_t> bad;
  for (uint64_t ordinal = 0; ordinal < 32; ++ordinal) {
    if (source_->mutable_sample(ordinal)->media.empty()) continue;
    source_->Fail(ordinal, DataFaultError("a scratch on the disk"));
    bad.insert(ordinal);
  }
  // Two steps contain each of the 32 samples once, since both ranks read them.
  Pull(v1::MODULE_VISION, 0, 2);
  Pull(v1::MODULE_VISION, 1, 2);
  const v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.bad_samples_size(), bad.size());
  EXPECT_THAT(status.bad_samples(0).reason(), HasSubstr("a scratch"));
  EXPECT_EQ(status.bad_samples(0).file(), "fake.jsonl");
  std::map<std::string, double> stats = Stats();
  EXPECT_EQ(stats["ballast_bad_samples source=docs"], bad.size());
  EXPECT_EQ(stats["ballast_bad_samples_limit"], 100);
  EXPECT_GE(stats["ballast_placeholders_total"], bad.size());
}

TEST_F(MetricsServiceTest, ReturnsReportedTimings) {
  v1::ReportRequest request;
  request.set_fingerprint(scheduler_->fingerprint().hash());
  v1::StepTiming& timing = *request.add_timings();
  timing.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  timing.mutable_role()->set_dp_rank(1);
  timing.set_step(4);
  timing.set_milliseconds(250);
  timing.set_wait_milliseconds(0);
  timing.set_pack_milliseconds(1.5);
  timing.set_decode_milliseconds(6.25);
  grpc::ClientContext context;
  v1::ReportResponse response;
  ASSERT_TRUE(loader_->Report(&context, request, &response).ok());
  const v1::GetStatusResponse status = Status();
  ASSERT_EQ(status.rank_times_size(), 1);
  const auto& times = status.rank_times(0);
  EXPECT_EQ(times.role().dp_rank(), 1u);
  EXPECT_EQ(times.step(), 4u);
  EXPECT_EQ(times.milliseconds(), 250);
  EXPECT_TRUE(times.has_wait_milliseconds());
  EXPECT_EQ(times.pack_milliseconds(), 1.5);
  EXPECT_EQ(times.decode_milliseconds(), 6.25);
  EXPECT_FALSE(times.has_copy_milliseconds());
  std::map<std::string, double> stats = Stats("ballast_rank_seconds");
  EXPECT_EQ(stats.size(), 4u);
  EXPECT_EQ(stats["ballast_rank_seconds module=language phase=pack"], 1);
  EXPECT_EQ(stats["ballast_rank_seconds module=language phase=decode"], 1);

  timing.set_copy_milliseconds(-1);
  grpc::ClientContext again;
  const grpc::Status refused = loader_->Report(&again, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("copy_milliseconds is -1"));
}

TEST_F(MetricsServiceTest, AServerWithoutAPageKeepsNoHistory) {
  v1::GetHistoryRequest request;
  v1::GetHistoryResponse response;
  grpc::ClientContext context;
  const grpc::Status none = metrics_->GetHistory(&context, request, &response);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(none.error_message(), HasSubstr("serve.http"));
  for (const uint32_t seconds : {59u, 86401u}) {
    request.set_seconds(seconds);
    grpc::ClientContext again;
    EXPECT_EQ(metrics_->GetHistory(&again, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace ballast
