// Several servers of one job, or of two jobs.

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/health.grpc.pb.h"
#include "proto/loader_service.grpc.pb.h"
#include "server/service/server.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/service/puller.h"

namespace ballast {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PeerServersTest : public ::testing::Test {
 protected:
  PeerServersTest() {
    char directory[] = "/tmp/ballast-test-XXXXXX";
    EXPECT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  ~PeerServersTest() override { std::filesystem::remove_all(directory_); }

  std::string Address(int server) const {
    return absl::StrCat("unix:", directory_, "/", server, ".sock");
  }

  // Server `server` of two; each has one rank of each module.
  std::unique_ptr<LoaderServer> Start(int server, uint64_t seed, Clock* clock) {
    OpenedJob job;
    job.config = JobConfig(2, 2, 16, 8);
    job.config.mutable_order()->set_seed(seed);
    job.config.mutable_serve()->set_listen(0, Address(server));
    job.config.mutable_topology()->clear_servers();
    for (const int s : {0, 1}) {
      v1::Topology::Server* added =
          job.config.mutable_topology()->add_servers();
      added->set_address(Address(s));
      (*added->mutable_ranks())["vision"] = std::to_string(s);
      (*added->mutable_ranks())["language"] = std::to_string(s);
    }
    job.tokenizer = *MakeTokenizer("bytes");
    job.text = *ModelText::Create(job.config.model(), job.tokenizer.get());
    auto source = std::make_unique<FakeSampleSource>(job.config, 32);
    job.scheduler = *Scheduler::Create(job.config, {&source->index()});
    job.sources.push_back(std::move(source));
    auto started = LoaderServer::Start(std::move(job), clock);
    EXPECT_TRUE(started.ok()) << started.status();
    return *std::move(started);
  }

  std::shared_ptr<grpc::Channel> Connect(int server) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        Address(server), grpc::InsecureChannelCredentials(), arguments);
  }

  static grpc::Status Attach(v1::LoaderService::Stub* stub, v1::Module module,
                             v1::AttachResponse* response) {
    v1::AttachRequest request;
    if (module != v1::MODULE_UNSPECIFIED) {
      request.mutable_role()->set_module(module);
    }
    grpc::ClientContext context;
    return stub->Attach(&context, request, response);
  }

  // Blocks until the server refuses ranks. Returns the reason.
  static std::string AwaitRefusal(v1::LoaderService::Stub* stub) {
    v1::AttachResponse response;
    while (response.refusal().empty()) {
      EXPECT_TRUE(Attach(stub, v1::MODULE_UNSPECIFIED, &response).ok());
    }
    return response.refusal();
  }

  static bool IsServing(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = grpc::health::v1::Health::NewStub(channel);
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(stub->Check(&context, {}, &response).ok());
    return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }

  std::string directory_;
  ManualClock clock_;
};

TEST_F(PeerServersTest, BothServersFindTheDifferenceAndRefuse) {
  const auto first = Start(0, 1234, &clock_);
  const auto first_channel = Connect(0);
  const auto first_stub = v1::LoaderService::NewStub(first_channel);
  v1::AttachResponse attached;
  ASSERT_TRUE(Attach(first_stub.get(), v1::MODULE_VISION, &attached).ok());
  Puller open(first_stub.get());
  open.Open(attached.fingerprint().hash(), v1::MODULE_VISION, 0, 0, 0);
  EXPECT_FALSE(open.NextBlock().empty());
  clock_.AwaitSleepers(1);  // no second server was running
  EXPECT_TRUE(IsServing(first_channel));

  // The second server finds out at once, the first when it asks again.
  const auto second = Start(1, 99, &clock_);
  const auto second_channel = Connect(1);
  const auto second_stub = v1::LoaderService::NewStub(second_channel);
  const std::string second_why = AwaitRefusal(second_stub.get());
  EXPECT_THAT(second_why,
              AllOf(HasSubstr("servers of different configurations"),
                    HasSubstr(attached.fingerprint().hash() + " of server " +
                              Address(0)),
                    HasSubstr("order.seed is 99 with server " + Address(1) +
                              " and 1234 with server " + Address(0))));
  clock_.Advance(absl::Seconds(1));
  const std::string first_why = AwaitRefusal(first_stub.get());
  EXPECT_THAT(first_why, HasSubstr("order.seed is 1234 with server"));

  for (const auto& [channel, stub, why] :
       {std::tie(first_channel, first_stub, first_why),
        std::tie(second_channel, second_stub, second_why)}) {
    grpc::Status status = Attach(stub.get(), v1::MODULE_LANGUAGE, &attached);
    EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), why);
    ASSERT_TRUE(Attach(stub.get(), v1::MODULE_UNSPECIFIED, &attached).ok());
    Puller late(stub.get());
    late.Open(attached.fingerprint().hash(), v1::MODULE_VISION, 0, 1, 1 << 30);
    status = late.Finish();
    EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), why);
  }
  open.Credit(open.begin().bytes());
  EXPECT_TRUE(open.NextBlock().empty());
  EXPECT_EQ(open.Finish().error_code(), StatusCode::FAILED_PRECONDITION);
  // The health changes right after the refusal that was awaited.
  while (IsServing(first_channel) || IsServing(second_channel)) {
  }
}

// Another job's server uses the address of a peer. While it runs, no rank is
// served; once it has gone, ranks are.
TEST_F(PeerServersTest, ServesAgainOnceADifferingPeerHasLeft) {
  auto stranger = Start(1, 99, &clock_);
  clock_.AwaitSleepers(1);
  ManualClock own_clock;
  const auto server = Start(0, 1234, &own_clock);
  const auto channel = Connect(0);
  const auto stub = v1::LoaderService::NewStub(channel);
  AwaitRefusal(stub.get());
  own_clock.AwaitSleepers(1);
  EXPECT_FALSE(IsServing(channel));

  stranger.reset();
  own_clock.Advance(PeerVerdict::kDiffersDelay);
  v1::AttachResponse attached;
  do {
    ASSERT_TRUE(Attach(stub.get(), v1::MODULE_UNSPECIFIED, &attached).ok());
  } while (!attached.refusal().empty());
  EXPECT_TRUE(Attach(stub.get(), v1::MODULE_VISION, &attached).ok());
  own_clock.AwaitSleepers(1);  // the health has been set before
  EXPECT_TRUE(IsServing(channel));

  // It comes back: it is found again, and again not permanently.
  stranger = Start(1, 99, &clock_);
  own_clock.Advance(absl::Seconds(1));
  AwaitRefusal(stub.get());
  own_clock.AwaitSleepers(1);
  stranger.reset();
  const auto peer = Start(1, 1234, &clock_);
  own_clock.Advance(PeerVerdict::kDiffersDelay);
  while (!IsServing(channel)) {
  }
}

// Each rank asks its own server.
TEST_F(PeerServersTest, AGroupMeetsAcrossServers) {
  const auto first = Start(0, 1234, &clock_);
  const auto second = Start(1, 1234, &clock_);
  const auto meet = [this](int server, uint32_t rank, const std::string& id,
                           v1::RendezvousResponse* response) {
    const auto stub = v1::LoaderService::NewStub(Connect(server));
    v1::RendezvousRequest request;
    request.set_group("vision");
    request.set_rank(rank);
    request.set_size(2);
    request.set_id(id);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(30));
    return stub->Rendezvous(&context, request, response);
  };
  for (const int zero_at : {0, 1}) {
    v1::RendezvousResponse zero, one;
    grpc::Status zero_status;
    std::thread other([&] { zero_status = meet(zero_at, 0, "the id", &zero); });
    const grpc::Status one_status = meet(1 - zero_at, 1, "", &one);
    other.join();
    EXPECT_TRUE(zero_status.ok()) << zero_status.error_message();
    EXPECT_TRUE(one_status.ok()) << one_status.error_message();
    EXPECT_EQ(zero.id(), "the id");
    EXPECT_EQ(one.id(), "the id");
    EXPECT_EQ(one.run(), zero.run());
  }
}

// A rank waits through the second server while that drains; then at a server
// whose meeting place is missing or belongs to another job.
TEST_F(PeerServersTest, AnImpossibleMeetingEndsWithTheCause) {
  auto first = Start(0, 1234, &clock_);
  auto second = Start(1, 1234, &clock_);
  const auto stub = v1::LoaderService::NewStub(Connect(1));
  v1::RendezvousRequest request;
  request.set_group("vision");
  request.set_rank(1);
  request.set_size(2);
  const auto meet = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(30));
    v1::RendezvousResponse response;
    return stub->Rendezvous(&context, request, &response);
  };
  {
    grpc::ClientContext context;
    v1::RendezvousResponse response;
    EXPECT_EQ(stub->Rendezvous(&context, request, &response).error_code(),
              StatusCode::INVALID_ARGUMENT);  // it has no deadline
  }
  first.reset();
  grpc::Status status = meet();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(),
              HasSubstr("the job's groups meet at server " + Address(0)));

  first = Start(0, 99, &clock_);
  do {  // until it has reconnected
    status = meet();
  } while (status.error_code() == StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("an address of another job?"));
}

TEST_F(PeerServersTest, EqualServersServe) {
  const auto first = Start(0, 1234, &clock_);
  clock_.AwaitSleepers(1);
  const auto second = Start(1, 1234, &clock_);
  clock_.Advance(absl::Seconds(1));
  for (const int s : {0, 1}) {
    const auto channel = Connect(s);
    EXPECT_TRUE(IsServing(channel));
    v1::AttachResponse attached;
    EXPECT_TRUE(Attach(v1::LoaderService::NewStub(channel).get(),
                       v1::MODULE_VISION, &attached)
                    .ok());
    EXPECT_EQ(attached.refusal(), "");
  }
}

}  // namespace
}  // namespace ballast
