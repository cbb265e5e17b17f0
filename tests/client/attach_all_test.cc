#include "client/attach_all.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/loader_client.h"
#include "tests/client/fake_server_fixture.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/manual_clock.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using AttachAllTest = FakeServerFixture;

TEST_F(AttachAllTest, AttachesToAll) {
  const auto other = FakeLoaderServer::Start();
  const auto other_client = LoaderClient::Create(other->address());
  LoaderClient* const clients[] = {client_.get(), other_client.get()};
  server_->SetAttach(SomeJob());
  other->SetAttach(SomeJob());
  EXPECT_TRUE(AttachAll(clients, SomeRole(), {}).ok());
  EXPECT_EQ(AttachAll({}, SomeRole(), {}).status().code(),
            absl::StatusCode::kInvalidArgument);

  // A primary that answers is enough, whatever the others do.
  for (const absl::StatusOr<v1::AttachResponse>& standby :
       std::vector<absl::StatusOr<v1::AttachResponse>>{
           absl::FailedPreconditionError("not this job"),
           absl::InternalError("broken"),
           absl::ResourceExhaustedError("busy")}) {
    other->SetAttach(standby);
    const auto attached = AttachAll(clients, SomeRole(), {});
    ASSERT_TRUE(attached.ok()) << attached.status();
    EXPECT_EQ(attached->fingerprint().hash(), SomeJob().fingerprint().hash());
  }

  // Two servers that differ: a rank with the other one first would train on
  // other data. A rank that knows its job's fingerprint goes on.
  other->SetAttach(SomeJob("32"));
  ExpectError(AttachAll(clients, SomeRole(), {}).status(),
              absl::StatusCode::kFailedPrecondition,
              "batch.micro is 16 with server " + server_->address() +
                  " and 32 with server " + other->address());
  EXPECT_TRUE(AttachAll(clients, SomeRole(), SomeJob().fingerprint()).ok());

  // Without a primary the others must agree. Names both servers, both
  // fingerprints and the key.
  const auto primary = FakeLoaderServer::Start();
  const auto primary_client = LoaderClient::Create(primary->address());
  primary->SetAttach(absl::UnavailableError("starts"));
  other->SetAttach(SomeJob("32"));
  LoaderClient* const three[] = {primary_client.get(), client_.get(),
                                 other_client.get()};
  const absl::Status status = AttachAll(three, SomeRole(), {}).status();
  ExpectError(status, absl::StatusCode::kFailedPrecondition,
              "batch.micro is 16 with server " + server_->address() +
                  " and 32 with server " + other->address());
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(SomeJob().fingerprint().hash()),
                    HasSubstr(SomeJob("32").fingerprint().hash())));
}

// A server of another job at the first address would otherwise feed this rank,
// and only this one, other data.
TEST_F(AttachAllTest, AFirstServerThatMostOthersContradictIsPassedOver) {
  std::vector<std::unique_ptr<FakeLoaderServer>> others;
  std::vector<std::unique_ptr<LoaderClient>> owned;
  std::vector<LoaderClient*> clients = {client_.get()};
  for (int i = 0; i < 3; ++i) {
    others.push_back(FakeLoaderServer::Start());
    owned.push_back(LoaderClient::Create(others.back()->address()));
    clients.push_back(owned.back().get());
    others.back()->SetAttach(SomeJob());
  }
  server_->SetAttach(SomeJob("32"));
  auto attached = AttachAll(clients, SomeRole(), {});
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ(attached->fingerprint().hash(), SomeJob().fingerprint().hash());
  // A rank that knows its job's fingerprint is not outvoted.
  attached = AttachAll(clients, SomeRole(), SomeJob("32").fingerprint());
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ(attached->fingerprint().hash(), SomeJob("32").fingerprint().hash());
  // Two against two: nothing decides.
  others[0]->SetAttach(SomeJob("32"));
  ExpectError(AttachAll(clients, SomeRole(), {}).status(),
              absl::StatusCode::kFailedPrecondition, "batch.micro is 32");
}

TEST_F(AttachAllTest, RanksThatAskOtherwiseAreNoticedAtEveryServer) {
  const auto other = FakeLoaderServer::Start();
  const auto other_client = LoaderClient::Create(other->address());
  LoaderClient* const clients[] = {client_.get(), other_client.get()};
  v1::AttachResponse otherwise = SomeJob();
  otherwise.set_asks_otherwise("rank 5 exchanges samples");
  server_->SetAttach(SomeJob());
  other->SetAttach(otherwise);
  const absl::Status status = AttachAll(clients, SomeRole(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(status.message(),
            "server " + other->address() + ": rank 5 exchanges samples");
  // A server of another job says nothing about this one.
  otherwise = SomeJob("32");
  otherwise.set_asks_otherwise("rank 5 exchanges samples");
  other->SetAttach(otherwise);
  EXPECT_TRUE(AttachAll(clients, SomeRole(), SomeJob().fingerprint()).ok());
}

TEST_F(AttachAllTest, WaitsForTheFirstServer) {
  LoaderClient* const clients[] = {client_.get()};
  server_->SetAttach(absl::UnavailableError("starts"));
  ManualClock clock;
  absl::Status status;
  std::thread rank([&] {
    status =
        AttachAll(clients, SomeRole(), {}, absl::Seconds(2), &clock).status();
  });
  for (int i = 0; i < 2; ++i) {
    clock.AwaitSleepers(1);
    clock.Advance(absl::Seconds(1));
  }
  rank.join();
  ExpectError(status, absl::StatusCode::kUnavailable, "starts");
  EXPECT_EQ(server_->attach_requests().size(), 3u);

  rank = std::thread([&] {
    status =
        AttachAll(clients, SomeRole(), {}, absl::Hours(1), &clock).status();
  });
  clock.AwaitSleepers(1);
  server_->SetAttach(SomeJob());
  clock.Advance(absl::Seconds(1));
  rank.join();
  EXPECT_TRUE(status.ok()) << status;
}

// Elsewhere than on a terminal: after 0, 1, 2, 4, 8, 16 and 32 seconds.
TEST_F(AttachAllTest, SaysAfterTwiceTheTimeThatItWaits) {
  ManualClock clock;
  LoaderClient* const clients[] = {client_.get()};
  server_->SetAttach(absl::UnavailableError("starts"));
  ::testing::internal::CaptureStderr();
  std::thread rank([&] {
    (void)AttachAll(clients, SomeRole(), {}, absl::Seconds(60), &clock);
  });
  for (int i = 0; i < 60; ++i) {
    clock.AwaitSleepers(1);
    clock.Advance(absl::Seconds(1));
  }
  rank.join();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 7) << log;
}

TEST_F(AttachAllTest, AttachesWithoutAServerThatIsAway) {
  const auto other = FakeLoaderServer::Start();
  const auto other_client = LoaderClient::Create(other->address());
  LoaderClient* const clients[] = {client_.get(), other_client.get()};
  server_->SetAttach(absl::UnavailableError("drains"));
  other->SetAttach(SomeJob());
  const auto attached = AttachAll(clients, SomeRole(), {});
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ(attached->fingerprint().hash(), SomeJob().fingerprint().hash());

  // The first to answer is compared with `expected`.
  v1::Fingerprint expected;
  expected.set_hash("0123");
  const absl::Status differs =
      AttachAll(clients, SomeRole(), expected).status();
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(differs.message()),
              AllOf(HasSubstr(other->address()), HasSubstr("0123")));

  // An error other than absence is returned.
  server_->SetAttach(absl::InvalidArgumentError("vision has 2 ranks"));
  ExpectError(AttachAll(clients, SomeRole(), {}).status(),
              absl::StatusCode::kInvalidArgument, "vision has 2 ranks");

  server_->SetAttach(absl::UnavailableError("drains"));
  other->SetAttach(absl::UnavailableError("starts"));
  const absl::Status none = AttachAll(clients, SomeRole(), {}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("none of the 2 servers answers"),
                    HasSubstr(server_->address() + ": Attach: drains"),
                    HasSubstr(other->address() + ": Attach: starts")));
}

}  // namespace
}  // namespace ballast
