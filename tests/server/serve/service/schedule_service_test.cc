#include "server/serve/service/schedule_service.h"

#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/mutex.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/job_config.h"
#include "tests/server/serve/service/loader_service_fixture.h"

namespace ballast {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

// Returns empty schedules of a megabyte, up to step 999,999, and counts the
// steps requested.
class CountingScheduler final : public Scheduler {
 public:
  CountingScheduler() {
    job_.set_global_batch(8);
    job_.set_micro_batch(8);
  }

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    if (step >= 1'000'000) return absl::OutOfRangeError("too far");
    {
      MutexLock lock(&mutex_);
      ++asked_[step];
    }
    v1::StepSchedule schedule;
    schedule.set_step(step);
    schedule.add_sources(std::string(1 << 20, 'x'));
    return schedule;
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

  // Number of requested steps in [first, last).
  int Asked(uint64_t first, uint64_t last) const {
    MutexLock lock(&mutex_);
    return std::distance(asked_.lower_bound(first), asked_.lower_bound(last));
  }

 private:
  v1::Job job_;
  const v1::Fingerprint fingerprint_;
  mutable Mutex mutex_;
  mutable std::map<uint64_t, int> asked_ ABSL_GUARDED_BY(mutex_);
};

// The client's side of one WatchSchedule call.
class Watch {
 public:
  Watch(v1::ScheduleService::Stub* stub, uint64_t from_step, uint64_t steps) {
    v1::WatchScheduleRequest request;
    request.set_from_step(from_step);
    request.set_steps(steps);
    reader_ = stub->WatchSchedule(&context_, request);
  }
  ~Watch() {
    context_.TryCancel();
    if (!finished_) Finish();
  }

  // The step that comes next; nullopt when the stream has ended.
  std::optional<uint64_t> Next() {
    if (!reader_->Read(&response_)) return std::nullopt;
    return response_.schedule().step();
  }
  grpc::Status Finish() {
    finished_ = true;
    return reader_->Finish();
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchScheduleResponse>> reader_;
  v1::WatchScheduleResponse response_;
  bool finished_ = false;
};

class ScheduleServiceTest : public ::testing::Test {
 protected:
  ScheduleServiceTest() {
    grpc::ServerBuilder server;
    int port = 0;
    server.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                            &port);
    server.RegisterService(service_.get());
    server_ = server.BuildAndStart();
    stub_ = v1::ScheduleService::NewStub(
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials()));
  }
  ~ScheduleServiceTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const CountingScheduler scheduler_;
  const std::shared_ptr<Loader> loader_ =
      *Loader::Create(JobConfig(1, 1, 8, 8), 1, &scheduler_,
                      std::make_unique<FakeSampleBuilder>());
  CallCount calls_;
  const std::unique_ptr<ScheduleServiceImpl> service_ =
      std::make_unique<ScheduleServiceImpl>(loader_.get(), &calls_);
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::ScheduleService::Stub> stub_;
};

TEST_F(ScheduleServiceTest, WatchGivesConsecutiveSteps) {
  Watch watch(stub_.get(), 7, 5);
  for (uint64_t step = 7; step < 12; ++step) EXPECT_EQ(watch.Next(), step);
  EXPECT_EQ(watch.Next(), std::nullopt);
  EXPECT_TRUE(watch.Finish().ok());
  EXPECT_EQ(scheduler_.Asked(0, 1000), 5);
}

TEST_F(ScheduleServiceTest, WatchEndsWithThePositions) {
  Watch watch(stub_.get(), 999'998, 0);
  EXPECT_EQ(watch.Next(), 999'998u);
  EXPECT_EQ(watch.Next(), 999'999u);
  EXPECT_EQ(watch.Next(), std::nullopt);
  const grpc::Status status = watch.Finish();
  EXPECT_EQ(status.error_code(), StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr("too far"));
}

// For a watcher that does not read, no more is computed than the connection's
// buffers hold, regardless of what others get meanwhile.
TEST_F(ScheduleServiceTest, ASlowWatcherDelaysOnlyItself) {
  Watch slow(stub_.get(), 1000, 0);
  EXPECT_EQ(slow.Next(), 1000u);
  Watch quick(stub_.get(), 0, 100);
  for (uint64_t step = 0; step < 100; ++step) EXPECT_EQ(quick.Next(), step);
  EXPECT_TRUE((quick.Next(), quick.Finish()).ok());
  EXPECT_LT(scheduler_.Asked(1000, 2000), 30);
  for (uint64_t step = 1001; step < 1050; ++step) EXPECT_EQ(slow.Next(), step);
}

TEST_F(ScheduleServiceTest, DrainEndsWatchesAfterTheScheduleBeingSent) {
  Watch watch(stub_.get(), 0, 0);
  uint64_t step = 0;
  EXPECT_EQ(watch.Next(), step);
  service_->Drain();
  while (const auto next = watch.Next()) EXPECT_EQ(*next, ++step);
  EXPECT_EQ(watch.Finish().error_code(), StatusCode::UNAVAILABLE);
  Watch late(stub_.get(), 0, 0);
  EXPECT_EQ(late.Next(), std::nullopt);
  EXPECT_EQ(late.Finish().error_code(), StatusCode::UNAVAILABLE);
  calls_.AwaitNone(absl::InfiniteFuture());
}

TEST_F(ScheduleServiceTest, ForgetsCancelledWatches) {
  for (int taken = 0; taken < 4; ++taken) {
    Watch watch(stub_.get(), 0, 0);
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(watch.Next().has_value());
    watch.Cancel();
    while (watch.Next().has_value()) {
    }
    EXPECT_EQ(watch.Finish().error_code(), StatusCode::CANCELLED);
  }
  calls_.AwaitNone(absl::InfiniteFuture());
}

TEST_F(ScheduleServiceTest, RefusesTooManyWatchers) {
  std::vector<std::unique_ptr<Watch>> watches;
  for (size_t i = 0; i < ScheduleWatches::kMaxOpen; ++i) {
    watches.push_back(std::make_unique<Watch>(stub_.get(), 0, 0));
    EXPECT_EQ(watches.back()->Next(), 0u);
  }
  Watch last(stub_.get(), 0, 0);
  EXPECT_EQ(last.Next(), std::nullopt);
  EXPECT_EQ(last.Finish().error_code(), StatusCode::RESOURCE_EXHAUSTED);
  watches.clear();
  calls_.AwaitNone(absl::InfiniteFuture());
  Watch again(stub_.get(), 0, 1);
  EXPECT_EQ(again.Next(), 0u);
}

using ::testing::ElementsAre;

// The services of a job with two splits.

v1::Config TwoSplits() {
  v1::Config config = JobConfig(2, 2, 16, 8);
  v1::Source* source = config.add_sources();
  *source = config.sources(0);
  source->set_name("held_out");
  source->set_split(v1::SPLIT_VALID);
  return config;
}

class SplitServiceTest : public LoaderServiceFixture {
 protected:
  SplitServiceTest() : LoaderServiceFixture(TwoSplits()) {}
};

TEST_F(SplitServiceTest, AttachAnswersForTheRolesSplit) {
  v1::AttachRequest request;
  v1::AttachResponse train, valid;
  request.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  ASSERT_TRUE(Attach(request, &train).ok());
  request.mutable_role()->set_split(v1::SPLIT_VALID);
  // A fingerprint of the other split is the same job's.
  *request.mutable_fingerprint() = train.fingerprint();
  ASSERT_TRUE(Attach(request, &valid).ok());
  EXPECT_EQ(train.job().split(), v1::SPLIT_TRAIN);
  EXPECT_EQ(valid.job().split(), v1::SPLIT_VALID);
  EXPECT_THAT(valid.job().splits(),
              ElementsAre(v1::SPLIT_TRAIN, v1::SPLIT_VALID));
  EXPECT_EQ(valid.fingerprint().hash(), train.fingerprint().hash());
  EXPECT_NE(valid.fingerprint().data_hash(), train.fingerprint().data_hash());
  EXPECT_EQ(valid.job().steps_per_epoch(), index_.size() / kGlobal);
}

TEST_F(SplitServiceTest, ASplitWithoutSourcesIsRefused) {
  v1::AttachRequest attach;
  v1::AttachResponse attached;
  attach.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  attach.mutable_role()->set_split(v1::SPLIT_TEST);
  v1::GetScheduleRequest request;
  request.set_split(v1::SPLIT_TEST);
  v1::GetScheduleResponse response;
  grpc::ClientContext context;
  for (const grpc::Status& status :
       {Attach(attach, &attached),
        schedule_stub_->GetSchedule(&context, request, &response)}) {
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("sources[].split"));
    EXPECT_THAT(status.error_message(), HasSubstr("train, valid"));
  }
}

TEST_F(SplitServiceTest, SchedulesAreThoseOfTheSplit) {
  const Scheduler* const valid = *scheduler_->OfSplit(v1::SPLIT_VALID);
  v1::GetScheduleRequest request;
  request.set_step(4);
  request.set_split(v1::SPLIT_VALID);
  v1::GetScheduleResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(schedule_stub_->GetSchedule(&context, request, &response).ok());
  EXPECT_EQ(response.schedule().SerializeAsString(),
            valid->Schedule(4)->SerializeAsString());

  v1::WatchScheduleRequest watch;
  watch.set_from_step(4);
  watch.set_steps(2);
  watch.set_split(v1::SPLIT_VALID);
  grpc::ClientContext watching;
  const auto reader = schedule_stub_->WatchSchedule(&watching, watch);
  v1::WatchScheduleResponse watched;
  for (const uint64_t step : {4, 5}) {
    ASSERT_TRUE(reader->Read(&watched));
    EXPECT_EQ(watched.schedule().SerializeAsString(),
              valid->Schedule(step)->SerializeAsString());
  }
  EXPECT_FALSE(reader->Read(&watched));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(SplitServiceTest, OnlyTrainsTimingsAreKept) {
  v1::ReportRequest report;
  report.set_fingerprint(fingerprint());
  v1::StepTiming* timing = report.add_timings();
  timing->mutable_role()->set_module(v1::MODULE_LANGUAGE);
  timing->mutable_role()->set_split(v1::SPLIT_VALID);
  timing->set_milliseconds(1);
  v1::ReportResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub_->Report(&context, report, &response);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("role.split is valid, wanted train"));
}

}  // namespace
}  // namespace ballast
