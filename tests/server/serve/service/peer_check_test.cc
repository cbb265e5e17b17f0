#include "server/serve/service/peer_check.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "proto/health.grpc.pb.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/metrics_service.grpc.pb.h"
#include "proto/schedule/fingerprint.h"
#include "server/serve/service/server.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"
#include "tests/server/serve/service/puller.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::Fingerprint Micro(const std::string& micro) {
  return MakeFingerprint({{"batch.global", "64"}, {"batch.micro", micro}});
}

v1::AttachResponse Answer(const v1::Fingerprint& fingerprint) {
  v1::AttachResponse response;
  *response.mutable_fingerprint() = fingerprint;
  return response;
}

TEST(PeerCheckTest, PeersAreTheOtherServers) {
  v1::Topology topology;
  EXPECT_THAT(PeerAddresses(topology, "unix:/a"), IsEmpty());
  for (const char* address : {"unix:/a", "unix:/b", "c:7070"}) {
    topology.add_servers()->set_address(address);
  }
  EXPECT_THAT(PeerAddresses(topology, "unix:/b"),
              ElementsAre("unix:/a", "c:7070"));
}

TEST(PeerCheckTest, OnlyAnotherFingerprintIsAFault) {
  const auto compare = [](absl::StatusOr<v1::AttachResponse> answer) {
    return ComparePeer(Micro("16"), "unix:/a", answer, "unix:/b");
  };
  EXPECT_EQ(*compare(Answer(Micro("16"))), true);
  EXPECT_EQ(*compare(absl::UnavailableError("not there")), false);
  EXPECT_EQ(*compare(absl::FailedPreconditionError("its own trouble")), false);
  EXPECT_EQ(*compare(v1::AttachResponse()), false);
  const absl::Status differs = compare(Answer(Micro("32"))).status();
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(differs.message()),
      AllOf(HasSubstr(Micro("16").hash() + " of server unix:/a"),
            HasSubstr(Micro("32").hash() + " of server unix:/b"),
            HasSubstr("first differing key: batch.micro is 16 with server "
                      "unix:/a and 32 with server unix:/b")));
}

TEST(PeerCheckTest, DelaysGrowAndEnd) {
  EXPECT_EQ(PeerRetryDelay(1), absl::Seconds(1));
  absl::Duration last, sum;
  int round = 1;
  for (; PeerRetryDelay(round).has_value(); ++round) {
    const absl::Duration delay = *PeerRetryDelay(round);
    EXPECT_GE(delay, last);
    EXPECT_LE(delay, 2 * std::max(last, absl::Seconds(0.5)));
    last = delay;
    sum += delay;
  }
  EXPECT_GT(sum, absl::Minutes(1));
  EXPECT_LT(sum, absl::Minutes(5));
  EXPECT_FALSE(PeerRetryDelay(round + 1).has_value());
}

// Answers as instructed; UNAVAILABLE without an instruction.
class FakeCaller final : public PeerCaller {
 public:
  struct Script {
    Mutex mutex;
    CondVar changed;
    std::map<std::string, v1::AttachResponse> answers ABSL_GUARDED_BY(mutex);
    std::vector<std::string> asked ABSL_GUARDED_BY(mutex);
    // Attach blocks until Cancel.
    bool hangs ABSL_GUARDED_BY(mutex) = false;
    bool cancelled ABSL_GUARDED_BY(mutex) = false;
  };
  explicit FakeCaller(std::shared_ptr<Script> script)
      : script_(std::move(script)) {}

  absl::StatusOr<v1::AttachResponse> Attach(
      const std::string& address) override {
    MutexLock lock(&script_->mutex);
    script_->asked.push_back(address);
    script_->changed.NotifyAll();
    while (script_->hangs && !script_->cancelled) {
      script_->changed.Wait(&script_->mutex);
    }
    const auto found = script_->answers.find(address);
    if (found == script_->answers.end()) {
      return absl::UnavailableError("nobody there");
    }
    return found->second;
  }
  void Cancel() override {
    MutexLock lock(&script_->mutex);
    script_->cancelled = true;
    script_->changed.NotifyAll();
  }

 private:
  const std::shared_ptr<Script> script_;
};

class PeerCheckThreadTest : public ::testing::Test {
 protected:
  void Start(const std::string& meeting = "") {
    check_ = *PeerCheck::Start({Micro("16"), "a", meeting}, {"b", "c", "d"},
                               std::make_unique<FakeCaller>(script_), &clock_,
                               [this](absl::Status status) {
                                 MutexLock lock(&mutex_);
                                 equal_ += status.ok();
                                 mismatch_ = std::move(status);
                                 found_.NotifyAll();
                               });
  }
  void SetAnswer(const std::string& address, const std::string& micro) {
    MutexLock lock(&script_->mutex);
    script_->answers[address] = Answer(Micro(micro));
  }
  std::vector<std::string> asked() {
    MutexLock lock(&script_->mutex);
    return script_->asked;
  }
  absl::Status AwaitMismatch() {
    MutexLock lock(&mutex_);
    while (mismatch_.ok()) found_.Wait(&mutex_);
    return mismatch_;
  }

  ManualClock clock_;
  const std::shared_ptr<FakeCaller::Script> script_ =
      std::make_shared<FakeCaller::Script>();
  Mutex mutex_;
  CondVar found_;
  absl::Status mismatch_ ABSL_GUARDED_BY(mutex_);
  int equal_ ABSL_GUARDED_BY(mutex_) = 0;  // times that all were
  std::unique_ptr<PeerCheck> check_;
};

TEST_F(PeerCheckThreadTest, DoesNotAskEqualPeersAgain) {
  SetAnswer("c", "16");
  Start();
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d"));
  SetAnswer("b", "16");
  clock_.Advance(absl::Seconds(1));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b", "d"));
  SetAnswer("d", "32");
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server d"));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(clock_.sleeps(), ElementsAre(absl::Seconds(1), absl::Seconds(2),
                                           PeerVerdict::kDiffersDelay));
}

// Ranks wait for the first OK, which comes once the server where groups meet is
// equal; other peers are asked then.
TEST_F(PeerCheckThreadTest, AsksTheMeetingAloneUntilItIsEqual) {
  SetAnswer("b", "16");
  Start(/*meeting=*/"c");
  clock_.AwaitSleepers(1);
  clock_.Advance(absl::Seconds(1));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("c", "c"));
  SetAnswer("c", "32");
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(std::string(AwaitMismatch().message()),
              HasSubstr("batch.micro is 16 with server a and 32 with server "
                        "c"));
  clock_.AwaitSleepers(1);
  {
    MutexLock lock(&mutex_);
    EXPECT_EQ(equal_, 0);
  }
  SetAnswer("c", "16");
  clock_.Advance(PeerVerdict::kDiffersDelay);
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("c", "c", "c", "c", "b", "c", "d"));
  MutexLock lock(&mutex_);
  EXPECT_TRUE(mismatch_.ok());
  EXPECT_EQ(equal_, 1);
}

TEST(PeerVerdictTest, AsksADifferingPeerUntilItIsGoneAndThenAsAtTheStart) {
  PeerVerdict verdict({"b", "c"});
  EXPECT_TRUE(verdict.status().ok());
  verdict.Note("b", absl::FailedPreconditionError("b differs"));
  verdict.Note("c", true);
  EXPECT_EQ(verdict.status().message(), "b differs");
  for (int round = 0; round < 1000; ++round) {
    EXPECT_THAT(verdict.ToAsk(), ElementsAre("b"));
    EXPECT_EQ(verdict.EndRound(), PeerVerdict::kDiffersDelay);
  }
  verdict.Note("b", false);
  EXPECT_TRUE(verdict.status().ok());
  EXPECT_THAT(verdict.silent(), ElementsAre("b"));
  for (int round = 1; PeerRetryDelay(round).has_value(); ++round) {
    EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(round));
  }
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  EXPECT_THAT(verdict.ToAsk(), ElementsAre("b", "c"));
  verdict.Note("b", true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
}

TEST(PeerVerdictTest, NamesTheFirstPeerThatDiffers) {
  PeerVerdict verdict({"b", "c"});
  verdict.Note("c", absl::FailedPreconditionError("c differs"));
  EXPECT_EQ(verdict.status().message(), "c differs");
  verdict.Note("b", absl::FailedPreconditionError("b differs"));
  EXPECT_EQ(verdict.status().message(), "b differs");
  verdict.Note("b", true);
  EXPECT_EQ(verdict.status().message(), "c differs");
}

TEST_F(PeerCheckThreadTest, ReportsThatADifferenceIsGone) {
  SetAnswer("b", "32");
  SetAnswer("c", "16");
  SetAnswer("d", "16");
  Start();
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server b"));
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d"));
  SetAnswer("b", "16");
  clock_.Advance(PeerVerdict::kDiffersDelay);
  {
    MutexLock lock(&mutex_);
    while (!mismatch_.ok()) found_.Wait(&mutex_);
  }
  check_->Stop();
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b"));
}

TEST_F(PeerCheckThreadTest, AsksSilentPeersLessOftenInTheEnd) {
  Start();
  int rounds = 1;
  for (; PeerRetryDelay(rounds).has_value(); ++rounds) {
    clock_.AwaitSleepers(1);
    clock_.Advance(*PeerRetryDelay(rounds));
  }
  clock_.AwaitSleepers(1);
  EXPECT_EQ(asked().size(), size_t{3} * rounds);
  EXPECT_EQ(clock_.sleeps().back(), PeerVerdict::kWatchDelay);
  MutexLock lock(&mutex_);
  EXPECT_TRUE(mismatch_.ok());
}

// Of three equal servers one is started anew with another seed, and nobody else
// starts or calls.
TEST_F(PeerCheckThreadTest, FindsAPeerThatIsStartedAnewWithAnotherSeed) {
  for (const char* peer : {"b", "c", "d"}) SetAnswer(peer, "16");
  Start();
  clock_.AwaitSleepers(1);
  clock_.Advance(PeerVerdict::kWatchDelay);
  clock_.AwaitSleepers(1);
  EXPECT_THAT(asked(), ElementsAre("b", "c", "d", "b", "c", "d"));
  SetAnswer("c", "32");
  clock_.Advance(PeerVerdict::kWatchDelay);
  EXPECT_THAT(std::string(AwaitMismatch().message()), HasSubstr("server c"));
}

// While it starts it is silent: it is asked as often as at the start.
TEST(PeerVerdictTest, AsksAPeerThatBecomesSilentSoon) {
  PeerVerdict verdict({"b", "c"});
  for (const char* peer : {"b", "c"}) verdict.Note(peer, true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  verdict.Note("b", true);
  verdict.Note("c", false);
  EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(1));
  EXPECT_THAT(verdict.ToAsk(), ElementsAre("c"));
  verdict.Note("c", false);
  EXPECT_EQ(verdict.EndRound(), *PeerRetryDelay(2));
}

TEST(PeerVerdictTest, ARoundAsksAFewInTurn) {
  std::vector<std::string> peers;
  for (int i = 0; i < 20; ++i) peers.push_back(std::to_string(i));
  PeerVerdict verdict(peers);
  for (const std::string& peer : peers) verdict.Note(peer, true);
  EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  std::map<std::string, int> asked;
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(verdict.ToAsk().size(), PeerVerdict::kWatchedARound);
    for (const std::string& peer : verdict.ToAsk()) {
      ++asked[peer];
      verdict.Note(peer, true);
    }
    EXPECT_EQ(verdict.EndRound(), PeerVerdict::kWatchDelay);
  }
  // 40 times 1 of 20.
  EXPECT_EQ(asked.size(), peers.size());
  for (const auto& [peer, times] : asked) EXPECT_EQ(times, 2) << peer;
}

TEST_F(PeerCheckThreadTest, StopsWhileAPeerHangs) {
  {
    MutexLock lock(&script_->mutex);
    script_->hangs = true;
  }
  Start();
  {
    MutexLock lock(&script_->mutex);
    while (script_->asked.empty()) script_->changed.Wait(&script_->mutex);
  }
  check_->Stop();
  EXPECT_THAT(asked(), ElementsAre("b"));
}

TEST_F(PeerCheckThreadTest, StopsWhileItSleeps) {
  Start();
  clock_.AwaitSleepers(1);
  check_.reset();
  EXPECT_EQ(asked().size(), 3);
}

// Several servers of one job, or of two jobs.

using grpc::StatusCode;

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

  // Server `server` of two; each has one rank of each module. Without
  // `names_servers` the configuration names itself, as by default, and server
  // 0 as topology.meeting.
  std::unique_ptr<LoaderServer> Start(int server, uint64_t seed, Clock* clock,
                                      bool names_servers = true) {
    OpenedJob job;
    job.config = JobConfig(2, 2, 16, 8);
    job.config.mutable_order()->set_seed(seed);
    job.config.mutable_serve()->set_listen(0, Address(server));
    job.config.mutable_topology()->clear_servers();
    v1::Topology& topology = *job.config.mutable_topology();
    if (!names_servers) topology.set_meeting(Address(0));
    for (const int s : {0, 1}) {
      if (!names_servers && s != server) continue;
      const std::string ranks = names_servers ? std::to_string(s) : "0-1";
      v1::Topology::Server* added = topology.add_servers();
      added->set_address(Address(s));
      (*added->mutable_ranks())["vision"] = ranks;
      (*added->mutable_ranks())["language"] = ranks;
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

  // Kinds of a server's problems.
  std::vector<std::string> Problems(int server) const {
    grpc::ClientContext context;
    v1::GetStatusResponse status;
    EXPECT_TRUE(v1::MetricsService::NewStub(Connect(server))
                    ->GetStatus(&context, {}, &status)
                    .ok());
    std::vector<std::string> kinds;
    for (const auto& problem : status.problems()) {
      kinds.push_back(problem.kind());
    }
    return kinds;
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

// A rank of server 1, which waits there, asks at either server.
TEST_F(PeerServersTest, ARankAsksWhoIsMissingAtAnyServer) {
  const auto first = Start(0, 1234, &clock_);
  const auto second = Start(1, 1234, &clock_);
  v1::RendezvousRequest request;
  request.set_group("vision");
  request.set_rank(1);
  request.set_size(3);
  grpc::ClientContext waiting;
  waiting.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(30));
  std::thread rank([&] {
    v1::RendezvousResponse response;
    v1::LoaderService::NewStub(Connect(1))
        ->Rendezvous(&waiting, request, &response);
  });
  v1::RendezvousRequest asks;
  asks.set_group("vision");
  asks.set_asks(true);
  for (const int server : {0, 1}) {
    const auto stub = v1::LoaderService::NewStub(Connect(server));
    v1::RendezvousResponse response;
    while (response.waiting() == 0) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::seconds(30));
      ASSERT_TRUE(stub->Rendezvous(&context, asks, &response).ok());
    }
    EXPECT_EQ(response.waiting(), 1u);
    EXPECT_THAT(response.missing(), ElementsAre(0, 2));
    EXPECT_EQ(response.elsewhere(), "");
  }
  waiting.TryCancel();
  rank.join();
}

// Two nodes whose configurations name the server of the first one alone. Ranks
// of the second one that meet no other would train by another configuration.
TEST_F(PeerServersTest, NoRankAttachesBeforeTheMeetingIsCompared) {
  const auto second = Start(1, 99, &clock_, /*names_servers=*/false);
  const auto stub = v1::LoaderService::NewStub(Connect(1));
  v1::AttachResponse attached;
  const grpc::Status waits = Attach(stub.get(), v1::MODULE_VISION, &attached);
  EXPECT_EQ(waits.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(waits.error_message(),
              HasSubstr("has not compared its configuration yet with server " +
                        Address(0)));
  EXPECT_EQ(AwaitRefusal(stub.get()), waits.error_message());
  EXPECT_THAT(Problems(1), Contains("meeting"));
  const auto first = Start(0, 1234, &clock_, /*names_servers=*/false);
  grpc::Status refused = waits;
  while (refused.error_code() == StatusCode::UNAVAILABLE) {
    clock_.AwaitSleepers(1);
    clock_.Advance(absl::Seconds(1));
    refused = Attach(stub.get(), v1::MODULE_VISION, &attached);
  }
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(),
              HasSubstr("first differing key: order.seed is 99 with server " +
                        Address(1) + " and 1234 with server " + Address(0)));
  EXPECT_THAT(Problems(1),
              AllOf(Contains("not_serving"), Not(Contains("meeting"))));
  // The ranks of the first one train on.
  EXPECT_TRUE(Attach(v1::LoaderService::NewStub(Connect(0)).get(),
                     v1::MODULE_VISION, &attached)
                  .ok());
}

TEST_F(PeerServersTest, AServerThatWasComparedServesWithoutTheMeeting) {
  auto first = Start(0, 1234, &clock_, /*names_servers=*/false);
  const auto second = Start(1, 1234, &clock_, /*names_servers=*/false);
  const auto stub = v1::LoaderService::NewStub(Connect(1));
  v1::AttachResponse attached;
  while (!Attach(stub.get(), v1::MODULE_VISION, &attached).ok()) {
  }
  EXPECT_THAT(Problems(1), Not(Contains("meeting")));
  first.reset();
  clock_.AwaitSleepers(1);
  clock_.Advance(PeerVerdict::kWatchDelay);
  clock_.AwaitSleepers(1);
  EXPECT_TRUE(Attach(stub.get(), v1::MODULE_VISION, &attached).ok());
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
