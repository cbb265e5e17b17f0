// The services of a job with two splits.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/service/loader_service_fixture.h"

namespace ballast {
namespace {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
