#include "server/serve/service/loader_service.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/serve/service/loader_service_fixture.h"

namespace ballast {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;
using LoaderServiceTest = LoaderServiceFixture;

TEST_F(LoaderServiceTest, AttachReturnsTheJob) {
  v1::AttachRequest request;
  v1::AttachResponse response;
  ASSERT_TRUE(Attach(request, &response).ok());
  EXPECT_EQ(response.fingerprint().hash(), fingerprint());
  EXPECT_GT(response.fingerprint().entries_size(), 0);
  EXPECT_EQ(response.job().global_batch(), kGlobal);
  EXPECT_EQ(response.job().modules_size(), 2);
  EXPECT_EQ(response.server(), "me");
  request.mutable_role()->set_module(v1::MODULE_VISION);
  request.mutable_role()->set_dp_rank(1);
  *request.mutable_fingerprint() = response.fingerprint();
  EXPECT_TRUE(Attach(request, &response).ok());
}

TEST_F(LoaderServiceTest, AttachRefusesAnotherFingerprintAndNamesTheKey) {
  v1::AttachRequest request;
  *request.mutable_fingerprint() =
      (*Scheduler::Create(JobConfig(2, 2, 32, kMicro), {&index_}))
          ->fingerprint();
  v1::AttachResponse response;
  const grpc::Status status = Attach(request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr(fingerprint()));
  EXPECT_THAT(status.error_message(), HasSubstr(request.fingerprint().hash()));
  EXPECT_THAT(status.error_message(), HasSubstr("batch.global is 16"));
}

TEST_F(LoaderServiceTest, AttachRefusesRanksThatTheJobLacks) {
  v1::AttachRequest request;
  request.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  request.mutable_role()->set_dp_rank(2);
  v1::AttachResponse response;
  EXPECT_EQ(Attach(request, &response).error_code(),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(LoaderServiceTest, KeepsReportedTimings) {
  v1::ReportRequest report;
  report.set_fingerprint(fingerprint());
  for (const uint64_t step : {8, 7}) {
    v1::StepTiming& timing = *report.add_timings();
    timing.mutable_role()->set_module(v1::MODULE_VISION);
    timing.mutable_role()->set_dp_rank(1);
    timing.set_step(step);
    timing.set_milliseconds(2.5);
  }
  const auto send = [&] {
    grpc::ClientContext context;
    v1::ReportResponse response;
    return stub_->Report(&context, report, &response);
  };
  const auto get = [&](uint64_t from_step, v1::Module module) {
    grpc::ClientContext context;
    v1::GetTimingsRequest request;
    v1::GetTimingsResponse response;
    request.set_from_step(from_step);
    request.set_module(module);
    EXPECT_TRUE(stub_->GetTimings(&context, request, &response).ok());
    return response;
  };
  ASSERT_TRUE(send().ok());
  ASSERT_TRUE(send().ok());  // once more
  const auto all = get(0, v1::MODULE_UNSPECIFIED);
  ASSERT_EQ(all.timings_size(), 2);
  EXPECT_EQ(all.timings(0).SerializeAsString(),
            report.timings(1).SerializeAsString());
  EXPECT_EQ(get(8, v1::MODULE_VISION).timings_size(), 1);
  EXPECT_EQ(get(0, v1::MODULE_LANGUAGE).timings_size(), 0);

  grpc::ClientContext context;
  v1::GetTimingsRequest request;
  v1::GetTimingsResponse response;
  request.set_module(static_cast<v1::Module>(9));
  const grpc::Status no_module =
      stub_->GetTimings(&context, request, &response);
  EXPECT_EQ(no_module.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(no_module.error_message(), HasSubstr("module is 9"));

  report.mutable_timings(0)->mutable_role()->set_dp_rank(2);
  EXPECT_EQ(send().error_code(), StatusCode::INVALID_ARGUMENT);
  report.set_fingerprint("");
  EXPECT_EQ(send().error_code(), StatusCode::INVALID_ARGUMENT);
  report.set_fingerprint("00112233445566778899aabbccddeeff");
  EXPECT_EQ(send().error_code(), StatusCode::FAILED_PRECONDITION);
}

TEST_F(LoaderServiceTest, RendezvousPassesOnTheId) {
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    threads.emplace_back([this, rank] {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::seconds(30));
      v1::RendezvousRequest request;
      request.set_group("world");
      request.set_rank(rank);
      request.set_size(4);
      if (rank == 0) request.set_id(std::string("bytes\0too", 9));
      v1::RendezvousResponse response;
      ASSERT_TRUE(stub_->Rendezvous(&context, request, &response).ok());
      EXPECT_EQ(response.id(), std::string("bytes\0too", 9));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LoaderServiceTest, RendezvousHonoursDeadlineAndDrain) {
  v1::RendezvousRequest request;
  request.set_group("world");
  request.set_rank(1);
  request.set_size(2);
  v1::RendezvousResponse response;
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(50));
    EXPECT_EQ(stub_->Rendezvous(&context, request, &response).error_code(),
              StatusCode::DEADLINE_EXCEEDED);
  }
  service_->Drain();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  EXPECT_EQ(stub_->Rendezvous(&context, request, &response).error_code(),
            StatusCode::UNAVAILABLE);
}

TEST_F(LoaderServiceTest, GetScheduleReturnsTheSchedulersSchedule) {
  v1::GetScheduleRequest request;
  v1::GetScheduleResponse response;
  request.set_step(12);
  {
    grpc::ClientContext context;
    ASSERT_TRUE(schedule_stub_->GetSchedule(&context, request, &response).ok());
    EXPECT_EQ(response.schedule().SerializeAsString(),
              scheduler_->Schedule(12)->SerializeAsString());
  }
  request.set_step(UINT64_MAX);
  grpc::ClientContext context;
  EXPECT_EQ(
      schedule_stub_->GetSchedule(&context, request, &response).error_code(),
      StatusCode::OUT_OF_RANGE);
}

}  // namespace
}  // namespace ballast
