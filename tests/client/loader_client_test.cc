#include "client/loader_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/schedule/fingerprint.h"
#include "tests/client/fake_server_fixture.h"
#include "tests/fakes/fake_loader_client.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

// Two servers with given answers, and the number of calls of each.
class TimingReporterTest : public ::testing::Test {
 protected:
  TimingReporterTest() {
    std::vector<LoaderClient*> servers;
    for (int i = 0; i < 2; ++i) {
      FakeLoader loader;
      loader.on_report = [this, i](const v1::StepTiming&) {
        ++asked_[i];
        return answers_[i];
      };
      clients_.push_back(FakeLoaderClient(loader));
      servers.push_back(clients_.back().get());
    }
    reporter_ = std::make_unique<TimingReporter>(servers, &clock_);
  }

  absl::Status Report() {
    return reporter_->Report(v1::StepTiming(), kSyntheticFingerprint);
  }

  const absl::Status hung_ = absl::DeadlineExceededError("hung");
  absl::Status answers_[2];
  int asked_[2] = {};
  ManualClock clock_;
  std::vector<std::unique_ptr<LoaderClient>> clients_;
  std::unique_ptr<TimingReporter> reporter_;
};

TEST_F(TimingReporterTest, AHungFirstServerDelaysOnlyOnce) {
  answers_[0] = hung_;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Report().ok());
  EXPECT_EQ(asked_[0], 1);
  EXPECT_EQ(asked_[1], 100);
  // The second fails: the first is asked again.
  answers_[0] = absl::OkStatus();
  answers_[1] = absl::UnavailableError("away");
  EXPECT_TRUE(Report().ok());
  EXPECT_TRUE(Report().ok());
  EXPECT_EQ(asked_[0], 3);
  EXPECT_EQ(asked_[1], 101);
}

TEST_F(TimingReporterTest, ServersThatHangAreSkipped) {
  answers_[0] = answers_[1] = hung_;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Report().code(), i < TimingReporter::kTolerated
                                   ? absl::StatusCode::kDeadlineExceeded
                                   : absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(asked_[0], TimingReporter::kTolerated);
  EXPECT_EQ(asked_[1], TimingReporter::kTolerated);
  // An hour of reports costs some twenty attempts.
  for (int i = 0; i < 3600; ++i) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_FALSE(Report().ok());
  }
  EXPECT_LT(asked_[0], 25);
  EXPECT_GT(asked_[0], 10);
  answers_[0] = answers_[1] = absl::OkStatus();
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(Report().ok());
  EXPECT_TRUE(Report().ok());
}

TEST_F(TimingReporterTest, ARefusalIsTheAnswer) {
  answers_[0] = absl::InvalidArgumentError("no such rank");
  EXPECT_EQ(Report(), answers_[0]);
  EXPECT_EQ(asked_[1], 0);
}

using LoaderClientTest = FakeServerFixture;

TEST_F(LoaderClientTest, Attaches) {
  server_->SetAttach(SomeJob());
  const v1::Fingerprint expected = MakeFingerprint({{"a", "b"}});
  const auto answer = client_->Attach(SomeRole(), expected);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->job().global_batch(), 64u);
  // A tool attaches to no rank.
  ASSERT_TRUE(client_->Attach(v1::Role(), v1::Fingerprint()).ok());

  const auto requests = server_->attach_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].role().dp_rank(), 2u);
  EXPECT_EQ(requests[0].fingerprint().hash(), expected.hash());
  EXPECT_FALSE(requests[1].has_role());
}

TEST_F(LoaderClientTest, ReportsWhyAttachWasRefused) {
  server_->SetAttach(absl::FailedPreconditionError("fingerprint X differs"));
  ExpectError(client_->Attach(SomeRole(), {}).status(),
              absl::StatusCode::kFailedPrecondition, "fingerprint X differs");
}

TEST_F(LoaderClientTest, RefusesAnImpossibleJob) {
  v1::AttachResponse answer = SomeJob();
  answer.mutable_job()->set_micro_batch(0);
  server_->SetAttach(answer);
  ExpectError(client_->Attach(SomeRole(), {}).status(),
              absl::StatusCode::kInternal,
              "wanted a multiple of the micro-batch, which is 0");
  answer = SomeJob();
  answer.clear_fingerprint();
  server_->SetAttach(answer);
  ExpectError(client_->Attach(SomeRole(), {}).status(),
              absl::StatusCode::kInternal, "no fingerprint");
}

TEST_F(LoaderClientTest, GetsSchedules) {
  v1::StepSchedule schedule;
  schedule.set_step(3);
  server_->SetSchedule([&](uint64_t) { return schedule; });
  const auto answer = client_->GetSchedule(3);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->step(), 3u);
  ExpectError(client_->GetSchedule(4).status(), absl::StatusCode::kInternal,
              "answered step 3, wanted 4");
  ExpectError(client_->GetSchedule(3, v1::SPLIT_VALID).status(),
              absl::StatusCode::kInternal,
              "answered a step of split train, wanted valid");
  schedule.set_split(v1::SPLIT_VALID);
  EXPECT_TRUE(client_->GetSchedule(3, v1::SPLIT_VALID).ok());
  schedule.clear_split();
  schedule.add_micro_batches()->add_tokens(1);
  ExpectError(client_->GetSchedule(3).status(), absl::StatusCode::kInternal,
              "malformed schedule: step 3 micro-batch 0");
}

TEST_F(LoaderClientTest, WatchesSchedules) {
  server_->SetSchedule([](uint64_t step) {
    v1::StepSchedule schedule;
    schedule.set_step(step);
    return schedule;
  });
  const auto watcher = client_->WatchSchedule(3, 2);
  ASSERT_TRUE(watcher.ok()) << watcher.status();
  for (const uint64_t step : {3, 4}) {
    const auto next = (*watcher)->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    ASSERT_TRUE(next->has_value());
    EXPECT_EQ((**next).step(), step);
  }
  for (int i = 0; i < 2; ++i) {
    const auto end = (*watcher)->Next();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_FALSE(end->has_value());
  }
}

TEST_F(LoaderClientTest, AWatchEndsWithTheFirstFault) {
  server_->SetSchedule([](uint64_t step) -> absl::StatusOr<v1::StepSchedule> {
    if (step == 6) return absl::OutOfRangeError("no such positions");
    v1::StepSchedule schedule;
    schedule.set_step(step == 9 ? 8 : step);
    if (step == 12) schedule.add_micro_batches()->add_tokens(1);
    return schedule;
  });
  const auto second = [this](uint64_t from_step) {
    const auto watcher = *client_->WatchSchedule(from_step, 0);
    EXPECT_TRUE(watcher->Next().ok());
    const absl::Status status = watcher->Next().status();
    EXPECT_EQ(watcher->Next().status(), status);
    return status;
  };
  ExpectError(second(5), absl::StatusCode::kOutOfRange, "no such positions");
  ExpectError(second(8), absl::StatusCode::kInternal,
              "WatchSchedule: answered step 8, wanted 9");
  ExpectError(second(11), absl::StatusCode::kInternal, "malformed schedule");
}

TEST_F(LoaderClientTest, AWatchIsCancelled) {
  server_->SetSchedule([](uint64_t step) {
    v1::StepSchedule schedule;
    schedule.set_step(step);
    return schedule;
  });
  const auto watcher = *client_->WatchSchedule(0, 0);
  EXPECT_TRUE(watcher->Next().ok());
  watcher->Cancel();
  ExpectError(watcher->Next().status(), absl::StatusCode::kCancelled,
              "WatchSchedule");
}

TEST_F(LoaderClientTest, RanksOfAGroupMeet) {
  server_->SetRendezvous("an id");
  const auto id =
      client_->Rendezvous("group", 1, 4, "not sent", absl::Seconds(10));
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, "an id");
  ASSERT_TRUE(
      client_->Rendezvous("group", 0, 4, "sent", absl::Seconds(10)).ok());
  const auto requests = server_->rendezvous_requests();
  EXPECT_EQ(requests[0].group(), "group");
  EXPECT_EQ(requests[0].rank(), 1u);
  EXPECT_EQ(requests[0].size(), 4u);
  EXPECT_EQ(requests[0].id(), "");
  EXPECT_EQ(requests[1].id(), "sent");
}

TEST_F(LoaderClientTest, MeetingEndsAtItsDeadline) {
  ExpectError(
      client_->Rendezvous("group", 1, 4, "", absl::Milliseconds(1)).status(),
      absl::StatusCode::kDeadlineExceeded,
      "Rendezvous of rank 1 of 4 in group group");
}

// The server says who is missing, in the log meanwhile and in the error.
TEST_F(LoaderClientTest, AMeetingNamesWhoIsMissing) {
  v1::RendezvousResponse waiting;
  waiting.set_waiting(5);
  waiting.add_missing(0);
  waiting.add_missing(6);
  server_->SetWaiting(waiting);
  ExpectError(client_->Rendezvous("group", 1, 8, "", absl::Seconds(2)).status(),
              absl::StatusCode::kDeadlineExceeded,
              "ranks 0, 6 and 1 more of 8 have not come");
  waiting.set_waiting(7);
  waiting.clear_missing();
  waiting.add_missing(6);
  waiting.set_elsewhere("language rank 6");
  server_->SetWaiting(waiting);
  ExpectError(
      client_->Rendezvous("group", 1, 8, "", absl::Seconds(2)).status(),
      absl::StatusCode::kDeadlineExceeded,
      "rank 6 of 8 has not come; without an exchange (delivery direct): "
      "language rank 6");
}

// The server, or the one where groups meet, is not up yet or is busy.
TEST_F(LoaderClientTest, RetriesAMeeting) {
  server_->SetRendezvous("an id");
  server_->FailRendezvous({absl::UnavailableError("the meeting is elsewhere"),
                           absl::ResourceExhaustedError("busy")});
  const auto id =
      client_->Rendezvous("group", 1, 4, "", absl::Seconds(60), "run 7");
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, "an id");
  const auto requests = server_->rendezvous_requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].run(), "run 7");
  EXPECT_EQ(requests[0].member().size(), 16u);
  for (const v1::RendezvousRequest& request : requests) {
    EXPECT_EQ(request.SerializeAsString(), requests[0].SerializeAsString());
  }
  // Another meeting draws another member id.
  ASSERT_TRUE(
      client_->Rendezvous("group", 1, 4, "", absl::Seconds(60), "run 7").ok());
  EXPECT_NE(server_->rendezvous_requests()[3].member(), requests[0].member());
}

TEST_F(LoaderClientTest, AFailedMeetingReportsTheLastError) {
  server_->FailRendezvous({absl::UnavailableError("X cannot be reached")});
  ExpectError(
      client_->Rendezvous("group", 1, 4, "", absl::Milliseconds(1)).status(),
      absl::StatusCode::kDeadlineExceeded, "");
  server_->FailRendezvous(
      std::vector<absl::Status>(8, absl::UnavailableError("X is away")));
  ExpectError(client_->Rendezvous("group", 1, 4, "", absl::Seconds(1)).status(),
              absl::StatusCode::kDeadlineExceeded,
              "the server said: X is away");
  server_->FailRendezvous({absl::FailedPreconditionError("sizes differ")});
  ExpectError(
      client_->Rendezvous("group", 1, 4, "", absl::Seconds(60)).status(),
      absl::StatusCode::kFailedPrecondition, "sizes differ");
}

TEST_F(LoaderClientTest, ChecksHealth) {
  EXPECT_TRUE(client_->CheckHealth().ok());
  server_->SetServing(false);
  const absl::Status status = client_->CheckHealth();
  ExpectError(status, absl::StatusCode::kUnavailable,
              "its health is NOT_SERVING");
  EXPECT_TRUE(AnswersWithoutServing(status));
  EXPECT_FALSE(AnswersWithoutServing(absl::UnavailableError("away")));
}

TEST_F(LoaderClientTest, AServerThatShutsDownIsUnavailable) {
  // The code with which gRPC ends calls when its server shuts down.
  server_->SetAttach(absl::CancelledError(""));
  ExpectError(client_->Attach({}, {}).status(), absl::StatusCode::kUnavailable,
              "Attach: the server is shutting down");
}

TEST_F(LoaderClientTest, WithoutAServerCallsFail) {
  const std::string address = "unix:/nonexistent/ballast.sock";
  const auto client = LoaderClient::Create(address);
  for (const absl::Status& status :
       {client->Attach({}, {}).status(), client->GetSchedule(0).status(),
        client->CheckHealth()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("server " + address));
  }
}

TEST_F(LoaderClientTest, WithoutAValidAddressCallsFail) {
  const auto client = LoaderClient::Create("node7");
  for (const absl::Status& status :
       {client->Attach({}, {}).status(), client->GetSchedule(0).status(),
        client->Rendezvous("group", 0, 1, "id", absl::Seconds(1)).status(),
        client->CheckHealth(), client->OpenPull({}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"node7\""));
  }
}

TEST_F(LoaderClientTest, ReportsTimings) {
  v1::StepTiming timing;
  timing.mutable_role()->set_module(v1::MODULE_LANGUAGE);
  timing.mutable_role()->set_dp_rank(3);
  timing.set_step(5);
  timing.set_micro_batch(2);
  timing.set_milliseconds(12.5);
  ASSERT_TRUE(client_->Report({timing, timing}, "hash").ok());
  ASSERT_EQ(server_->report_requests().size(), 1u);
  const v1::ReportRequest request = server_->report_requests()[0];
  EXPECT_EQ(request.fingerprint(), "hash");
  ASSERT_EQ(request.timings_size(), 2);
  EXPECT_EQ(request.timings(1).SerializeAsString(), timing.SerializeAsString());
  server_->SetReport(absl::InvalidArgumentError("no such rank"));
  ExpectError(client_->Report({timing}, "hash"),
              absl::StatusCode::kInvalidArgument, "Report: no such rank");

  v1::GetTimingsResponse kept;
  *kept.add_timings() = timing;
  server_->SetTimings(kept);
  const auto timings = client_->GetTimings(4, v1::MODULE_LANGUAGE);
  ASSERT_TRUE(timings.ok()) << timings.status();
  ASSERT_EQ(timings->size(), 1u);
  EXPECT_EQ((*timings)[0].SerializeAsString(), timing.SerializeAsString());
  EXPECT_EQ(server_->timings_requests()[0].from_step(), 4u);
  EXPECT_EQ(server_->timings_requests()[0].module(), v1::MODULE_LANGUAGE);
}

}  // namespace
}  // namespace ballast
