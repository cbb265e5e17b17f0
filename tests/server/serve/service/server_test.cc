#include "server/serve/service/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/health.grpc.pb.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/metrics_service.grpc.pb.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpenedJob Job(std::vector<std::string> listen) {
  OpenedJob job;
  job.config = JobConfig(2, 2, 16, 8);
  job.config.mutable_serve()->mutable_listen()->Assign(listen.begin(),
                                                       listen.end());
  job.tokenizer = *MakeTokenizer("bytes");
  job.text = *ModelText::Create(job.config.model(), job.tokenizer.get());
  auto source = std::make_unique<FakeSampleSource>(job.config, 32);
  job.scheduler = *Scheduler::Create(job.config, {&source->index()});
  job.sources.push_back(std::move(source));
  return job;
}

std::unique_ptr<LoaderServer> StartAt(std::vector<std::string> listen) {
  auto server = LoaderServer::Start(Job(std::move(listen)));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  // Each test needs its own connection; gRPC shares connections between equal
  // channels.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

absl::StatusOr<v1::AttachResponse> Attach(const std::string& address) {
  const auto stub = v1::LoaderService::NewStub(Connect(address));
  grpc::ClientContext context;
  v1::AttachResponse response;
  const grpc::Status status =
      stub->Attach(&context, v1::AttachRequest(), &response);
  if (!status.ok()) return absl::UnavailableError(status.error_message());
  return response;
}

// A stream of the vision rank's blocks from a server's first address.
struct OpenedPull {
  explicit OpenedPull(const LoaderServer& server,
                      v1::PullRequest::Open open = {})
      : stub(v1::LoaderService::NewStub(Connect(server.addresses()[0]))),
        stream(stub->Pull(&context)) {
    const auto attached = Attach(server.addresses()[0]);
    EXPECT_TRUE(attached.ok()) << attached.status();
    open.mutable_role()->set_module(v1::MODULE_VISION);
    open.set_fingerprint(attached->fingerprint().hash());
    v1::PullRequest request;
    *request.mutable_open() = std::move(open);
    stream->Write(request);
  }

  grpc::ClientContext context;
  const std::unique_ptr<v1::LoaderService::Stub> stub;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::PullRequest, v1::PullResponse>>
      stream;
};

// Uses a short path: those of Unix sockets are limited, and the test's
// directory is too long.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { EXPECT_EQ(chdir(::testing::TempDir().c_str()), 0); }
};

TEST_F(ServerTest, ServesAtEveryAddress) {
  const auto server = StartAt({"unix:a.sock", "127.0.0.1:0"});
  ASSERT_EQ(server->addresses().size(), 2);
  EXPECT_EQ(server->addresses()[0], "unix:a.sock");
  EXPECT_FALSE(absl::EndsWith(server->addresses()[1], ":0"));
  for (const std::string& address : server->addresses()) {
    const auto attached = Attach(address);
    ASSERT_TRUE(attached.ok()) << attached.status();
    EXPECT_EQ(attached->job().global_batch(), 16);
  }
}

TEST_F(ServerTest, BuildsBlocksFromTheSources) {
  const auto server = StartAt({"127.0.0.1:0"});
  v1::PullRequest::Open open;
  open.set_steps(1);
  open.set_credit(1 << 30);
  const OpenedPull pull(*server, open);
  const auto& stream = pull.stream;
  int blocks = 0;
  v1::PullResponse response;
  while (stream->Read(&response)) blocks += response.has_begin();
  EXPECT_EQ(blocks, 2);
  EXPECT_TRUE(stream->Finish().ok());
}

// The disk hangs at one sample of the first block.
TEST_F(ServerTest, ReportsAStallAndGivesUpAHangingRead) {
  OpenedJob job = Job({"127.0.0.1:0"});
  // The first position with an image, which vision reads.
  const v1::StepSchedule schedule = *job.scheduler->Schedule(0);
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(0);
  int hanging = 0;
  while (columns.images(hanging) == 0 ||
         columns.modules(0).reader(hanging) != 0) {
    ++hanging;
  }
  auto* source = static_cast<FakeSampleSource*>(job.sources[0].get());
  source->Hang(columns.ordinal(hanging));
  job.config.mutable_serve()->set_stall_after(0.01);
  job.config.mutable_serve()->set_read_timeout(2);
  const auto server = LoaderServer::Start(std::move(job));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Connect((*server)->addresses()[0]);
  const auto attached = Attach((*server)->addresses()[0]);
  const auto stub = v1::LoaderService::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Pull(&context);
  v1::PullRequest request;
  request.mutable_open()->mutable_role()->set_module(v1::MODULE_VISION);
  request.mutable_open()->set_steps(1);
  request.mutable_open()->set_fingerprint(attached->fingerprint().hash());
  request.mutable_open()->set_credit(1 << 30);
  stream->Write(request);

  const auto metrics = v1::MetricsService::NewStub(channel);
  const auto status = [&] {
    grpc::ClientContext call;
    v1::GetStatusResponse answer;
    EXPECT_TRUE(metrics->GetStatus(&call, {}, &answer).ok());
    return answer;
  };
  const std::string name = absl::StrCat("docs:", columns.ordinal(hanging));
  v1::GetStatusResponse::Stall stall;
  while (stall.sample() != name) {
    // On a busy machine other samples may take long too, and then pass.
    const v1::GetStatusResponse answer = status();
    if (answer.stalls_size() > 0) stall = answer.stalls(0);
  }
  EXPECT_EQ(stall.stage(), "reading images");
  EXPECT_EQ(stall.file(), "fake.jsonl");
  EXPECT_EQ(stall.offset(), 100 * columns.ordinal(hanging));
  EXPECT_EQ(stall.position(), columns.position(hanging));
  EXPECT_EQ(stall.module(), v1::MODULE_VISION);
  EXPECT_GE(stall.seconds(), 0.01);

  // A read that is given up may succeed elsewhere: no placeholder replaces the
  // sample, and the rank continues at another server, or here later.
  v1::PullResponse response;
  int blocks = 0;
  while (stream->Read(&response)) blocks += response.has_begin();
  EXPECT_EQ(blocks, 0);
  const grpc::Status ended = stream->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(),
              AllOf(HasSubstr(name), HasSubstr("not read within 2s")));
  const v1::GetStatusResponse after = status();
  EXPECT_EQ(after.stalls_size(), 0);
  EXPECT_EQ(after.bad_samples_size(), 0);
  source->Release();
  grpc::ClientContext second_context;
  const auto second = stub->Pull(&second_context);
  second->Write(request);
  while (second->Read(&response)) blocks += response.has_begin();
  EXPECT_EQ(blocks, 2);
  EXPECT_TRUE(second->Finish().ok());
}

TEST_F(ServerTest, ReplacesASocketLeftBehindButNotOneInUse) {
  const auto server = StartAt({"unix:b.sock"});
  const auto second = LoaderServer::Start(Job({"unix:b.sock"}));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Attach("unix:b.sock").ok());
}

TEST_F(ServerTest, ASocketIsForOwnerAndGroupUnderAnyUmask) {
  for (const mode_t mask : {0000, 0077, 0777}) {
    const mode_t before = umask(mask);
    const auto server = StartAt({"unix:mode.sock"});
    EXPECT_EQ(umask(before), mask);
    struct stat found;
    ASSERT_EQ(stat("mode.sock", &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0660u);
  }
}

TEST_F(ServerTest, RefusesAPortInUse) {
  const auto server = StartAt({"127.0.0.1:0"});
  const auto second = LoaderServer::Start(Job({server->addresses()[0]}));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(server->addresses()[0]),
                    HasSubstr("Address already in use"),
                    HasSubstr("wanted a port that is free")));
  EXPECT_TRUE(Attach(server->addresses()[0]).ok());
}

TEST_F(ServerTest, HealthIsServingUntilTheDrain) {
  const auto server = StartAt({"127.0.0.1:0"});
  const auto stub =
      grpc::health::v1::Health::NewStub(Connect(server->addresses()[0]));
  const grpc::health::v1::HealthCheckRequest request;
  grpc::health::v1::HealthCheckResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->Check(&context, request, &response).ok());
    EXPECT_EQ(response.status(),
              grpc::health::v1::HealthCheckResponse::SERVING);
  }
  server->Shutdown();
  grpc::ClientContext context;
  EXPECT_FALSE(stub->Check(&context, request, &response).ok());
}

// Requests the list of services as bytes: field 7, a string.
TEST_F(ServerTest, ReflectionListsTheServices) {
  const auto server = StartAt({"127.0.0.1:0"});
  grpc::GenericStub stub(Connect(server->addresses()[0]));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(await());
  const grpc::Slice bytes(std::string("\x3a\x01*", 3));
  call->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
  ASSERT_TRUE(await());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(await());
  grpc::Slice slice;
  ASSERT_TRUE(answer.DumpToSingleSlice(&slice).ok());
  const std::string listed(reinterpret_cast<const char*>(slice.begin()),
                           slice.size());
  EXPECT_THAT(listed, HasSubstr("ballast.v1.LoaderService"));
  EXPECT_THAT(listed, HasSubstr("ballast.v1.ScheduleService"));
  EXPECT_THAT(listed, HasSubstr("grpc.health.v1.Health"));
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  await();
  queue.Shutdown();
  while (await()) {
  }
}

TEST_F(ServerTest, DrainEndsStreamsAndWakesWaiters) {
  const auto server = StartAt({"127.0.0.1:0"});
  const OpenedPull pull(*server);
  const auto& stream = pull.stream;
  v1::PullResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::thread waiter([&server] { server->Wait(); });
  std::thread drainer(
      [&server] { server->Drain(absl::Now() + absl::Minutes(10)); });
  while (stream->Read(&response)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  drainer.join();
  waiter.join();
  EXPECT_FALSE(Attach(server->addresses()[0]).ok());
}

TEST_F(ServerTest, ShutdownCancelsClientsThatNeverRead) {
  auto server = StartAt({"127.0.0.1:0"});
  v1::PullRequest::Open open;
  open.set_credit(uint64_t{1} << 40);
  const OpenedPull pull(*server, open);
  const auto& stream = pull.stream;
  v1::PullResponse response;
  ASSERT_TRUE(stream->Read(&response));
  server.reset();
  while (stream->Read(&response)) {
  }
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(ServerTest, HttpBeyondLoopbackNeedsInsecure) {
  const auto start = [](bool insecure) {
    OpenedJob job = Job({"127.0.0.1:0"});
    job.config.mutable_serve()->set_http("0.0.0.0:0");
    job.config.mutable_security()->set_insecure(insecure);
    return LoaderServer::Start(std::move(job)).status();
  };
  const absl::Status refused = start(false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("serve.http: found 0.0.0.0:0"),
                    HasSubstr("security.insecure")));
  EXPECT_TRUE(start(true).ok());
}

TEST_F(ServerTest, HttpListensAtIpv6) {
  OpenedJob job = Job({"127.0.0.1:0"});
  job.config.mutable_serve()->set_http("[::1]:0");
  const auto server = LoaderServer::Start(std::move(job));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(absl::StartsWith((*server)->http_address(), "[::1]:"));
}

TEST_F(ServerTest, HttpListensOnlyAtItsAddress) {
  EXPECT_EQ(StartAt({"127.0.0.1:0"})->http_address(), "");
  OpenedJob job = Job({"127.0.0.1:0"});
  job.config.mutable_serve()->set_http("localhost:0");
  const auto server = LoaderServer::Start(std::move(job));
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->http_address();
  EXPECT_TRUE(absl::StartsWith(address, "127.0.0.1:"));
  OpenedJob second = Job({"127.0.0.1:0"});
  second.config.mutable_serve()->set_http(address);
  const absl::Status taken = LoaderServer::Start(std::move(second)).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("serve.http"));
}

TEST_F(ServerTest, IdentifiesTheServerInTheTopology) {
  v1::Config config = JobConfig(2, 2, 16, 8);
  EXPECT_EQ(IdentifyServer(config)->ranks, 4);
  EXPECT_EQ(IdentifyServer(config)->name, "127.0.0.1:0");
  auto* servers = config.mutable_topology()->mutable_servers();
  (*servers->Mutable(0)->mutable_ranks())["vision"] = "0";
  servers->Mutable(0)->mutable_ranks()->erase("language");
  v1::Topology::Server* second = servers->Add();
  second->set_address("unix:/b");
  (*second->mutable_ranks())["vision"] = "1";
  (*second->mutable_ranks())["language"] = "0-1";
  EXPECT_EQ(IdentifyServer(config)->ranks, 1);
  config.mutable_serve()->set_listen(0, "unix:/b");
  EXPECT_EQ(IdentifyServer(config)->ranks, 3);
  config.mutable_serve()->set_listen(0, "unix:/c");
  EXPECT_EQ(IdentifyServer(config).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ServerTest, AMockSourceNeedsNoIndex) {
  LoadedConfig config;
  config.config = JobConfig(2, 2, 16, 8);
  v1::Source& source = *config.config.mutable_sources(0);
  source.set_format(v1::Source::FORMAT_MOCK);
  source.set_vocabulary(256);
  v1::Source::Lengths& lengths = *source.mutable_lengths();
  lengths.set_mode(v1::Source::Lengths::MODE_LOGNORMAL);
  lengths.set_min(1);
  lengths.set_max(5000);
  lengths.set_mean(4000);
  lengths.set_count(100);
  lengths.set_sigma(0);
  const auto job = OpenJob(config);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sources[0]->index().size(), 100u);
  lengths.set_mean(4097);  // batch.max_tokens is 4096
  const absl::Status status = OpenJob(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("source docs: 100 of"));
}

}  // namespace
}  // namespace ballast
