// Bearer tokens, over a Unix socket and over TLS.

#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/loader_service.grpc.pb.h"
#include "server/serve/service/peer_check.h"
#include "tests/fakes/test_certificates.h"
#include "tests/integration/security/small_server.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDay[] = "token-of-the-day-job";
constexpr char kNight[] = "token-of-the-night-job";

// Settings of a server of the job `day`.
v1::Security DaySecurity() {
  v1::Security security;
  security.set_tokens_file(WriteTestFile(
      "tokens", std::string(kDay) + " day\n" + kNight + " night\n"));
  security.set_job("day");
  return security;
}

ChannelSecurity With(const std::string& token) {
  ChannelSecurity security;
  security.token = token;
  return security;
}

class UnixTokenTest : public ::testing::Test {
 protected:
  // Uses a short path, since a socket's is limited and the test's directory is
  // too long.
  UnixTokenTest() {
    EXPECT_EQ(chdir(::testing::TempDir().c_str()), 0);
    auto server = StartSmallServer(kAddress, DaySecurity());
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }

  static constexpr char kAddress[] = "unix:tokens.sock";
  std::unique_ptr<LoaderServer> server_;
};

TEST_F(UnixTokenTest, AcceptsTheJobsToken) {
  ASSERT_NE(server_, nullptr);
  const absl::Status attached = TryAttach(kAddress, With(kDay));
  EXPECT_TRUE(attached.ok()) << attached;
  const absl::Status pulled = TryPull(kAddress, With(kDay));
  EXPECT_TRUE(pulled.ok()) << pulled;
  const auto client = LoaderClient::CreateSecure(kAddress, With(kDay));
  EXPECT_TRUE(client->GetSchedule(0).ok());
  const auto watcher = client->WatchSchedule(0, 1);
  ASSERT_TRUE(watcher.ok());
  EXPECT_TRUE((*watcher)->Next().ok());
}

TEST_F(UnixTokenTest, RefusesNoTokenAndAnUnknownOne) {
  ASSERT_NE(server_, nullptr);
  const absl::Status none = TryAttach(kAddress, ChannelSecurity());
  EXPECT_EQ(none.code(), absl::StatusCode::kUnauthenticated) << none;
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr(kAddress), HasSubstr("no token"),
                    HasSubstr("--token-file")));
  const std::string wrong = "token-of-nobody-at-all";
  const absl::Status unknown = TryAttach(kAddress, With(wrong));
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnauthenticated) << unknown;
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("does not know the client's token"),
                    Not(HasSubstr(wrong))));
}

TEST_F(UnixTokenTest, DeniesAnotherJobsToken) {
  ASSERT_NE(server_, nullptr);
  const absl::Status denied = TryAttach(kAddress, With(kNight));
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
  EXPECT_THAT(std::string(denied.message()),
              AllOf(HasSubstr("for another job"), Not(HasSubstr(kNight))));
}

TEST_F(UnixTokenTest, ReloadsTokensWithTheConfiguration) {
  ASSERT_NE(server_, nullptr);
  v1::Config config;
  config.mutable_serve()->set_read_attempts(3);
  config.mutable_serve()->set_read_timeout(30);
  config.mutable_serve()->set_stall_after(10);
  *config.mutable_security() = DaySecurity();
  // Calls in progress continue.
  const auto client = LoaderClient::CreateSecure(kAddress, With(kDay));
  const auto watcher = client->WatchSchedule(0, 2);
  ASSERT_TRUE(watcher.ok());
  EXPECT_TRUE((*watcher)->Next().ok());

  // Another file, in which the other job's token is valid for this job.
  config.mutable_security()->set_tokens_file(
      WriteTestFile("new-tokens", std::string(kNight) + " day\n"));
  const absl::Status reloaded = server_->Reload(config);
  ASSERT_TRUE(reloaded.ok()) << reloaded;
  EXPECT_EQ(TryAttach(kAddress, With(kDay)).code(),
            absl::StatusCode::kUnauthenticated);
  EXPECT_TRUE(TryAttach(kAddress, With(kNight)).ok());
  EXPECT_TRUE((*watcher)->Next().ok());

  // A file with a fault changes nothing.
  config.mutable_security()->set_tokens_file(WriteTestFile("bad", "x\n"));
  EXPECT_THAT(std::string(server_->Reload(config).message()),
              HasSubstr("security.tokens_file: "));
  EXPECT_TRUE(TryAttach(kAddress, With(kNight)).ok());
}

// A token is rotated under a running rank: its file and the server's change.
TEST_F(UnixTokenTest, ARunningClientGoesOnWithTheTokenOfItsFile) {
  ASSERT_NE(server_, nullptr);
  SecurityFiles files;
  files.token_file = WriteTestFile("client-token", std::string(kDay) + "\n");
  const auto security = LoadChannelSecurity(files);
  ASSERT_TRUE(security.ok()) << security.status();
  const auto client = LoaderClient::CreateSecure(kAddress, *security);
  EXPECT_TRUE(client->GetSchedule(0).ok());

  v1::Config config;
  config.mutable_serve()->set_read_attempts(3);
  config.mutable_serve()->set_read_timeout(30);
  config.mutable_serve()->set_stall_after(10);
  *config.mutable_security() = DaySecurity();
  const std::string next = "token-of-the-next-month";
  config.mutable_security()->set_tokens_file(
      WriteTestFile("next-tokens", next + " day\n"));
  ASSERT_TRUE(server_->Reload(config).ok());
  EXPECT_EQ(client->GetSchedule(1).status().code(),
            absl::StatusCode::kUnauthenticated);
  WriteTestFile("client-token", next + "\n");
  const auto schedule = client->GetSchedule(1);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  const absl::Status pulled = TryPull(kAddress, *security);
  EXPECT_TRUE(pulled.ok()) << pulled;
}

TEST(PeerSecurityTest, AServerShowsOthersWhatItHasReadLast) {
  v1::Security security = DaySecurity();
  auto server = ServerSecurity::Load(security);
  ASSERT_TRUE(server.ok()) << server.status();
  const PeerSecurity to_peers = server->to_peers();
  const ChannelSecurity opened = to_peers();
  EXPECT_EQ(opened.current_token(), kDay);
  security.set_tokens_file(
      WriteTestFile("new-tokens", std::string(kNight) + " day\n"));
  ASSERT_TRUE(server->Reload(security).ok());
  EXPECT_EQ(opened.current_token(), kNight);  // of a connection that is open
  EXPECT_EQ(to_peers().token, kNight);
}

TEST_F(UnixTokenTest, RequiresATokenWithEveryCall) {
  ASSERT_NE(server_, nullptr);
  const auto client = LoaderClient::CreateSecure(kAddress, ChannelSecurity());
  const auto code = [](const absl::Status& status) { return status.code(); };
  const auto refused = absl::StatusCode::kUnauthenticated;
  EXPECT_EQ(code(client->GetSchedule(0).status()), refused);
  EXPECT_EQ(code(client->GetTimings(0, v1::MODULE_UNSPECIFIED).status()),
            refused);
  EXPECT_EQ(code(client->Report({v1::StepTiming()}, "f")), refused);
  EXPECT_EQ(
      code(client->Rendezvous("g", 0, 1, "id", absl::Seconds(30)).status()),
      refused);
  const auto watcher = client->WatchSchedule(0, 1);
  ASSERT_TRUE(watcher.ok());
  EXPECT_EQ(code((*watcher)->Next().status()), refused);
  EXPECT_EQ(code(TryPull(kAddress, ChannelSecurity())), refused);
}

TEST_F(UnixTokenTest, HealthNeedsNoTokenButReflectionDoes) {
  ASSERT_NE(server_, nullptr);
  const auto client = LoaderClient::CreateSecure(kAddress, ChannelSecurity());
  const absl::Status health = client->CheckHealth();
  EXPECT_TRUE(health.ok()) << health;

  grpc::GenericStub stub(
      grpc::CreateChannel(kAddress, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

TEST_F(UnixTokenTest, RefusesOtherCredentials) {
  ASSERT_NE(server_, nullptr);
  const auto stub = v1::LoaderService::NewStub(
      grpc::CreateChannel(kAddress, grpc::InsecureChannelCredentials()));
  const auto attach = [&stub](const std::vector<std::string>& values) {
    grpc::ClientContext context;
    for (const std::string& value : values) {
      context.AddMetadata("authorization", value);
    }
    v1::AttachResponse response;
    return stub->Attach(&context, v1::AttachRequest(), &response).error_code();
  };
  const std::string good = std::string("Bearer ") + kDay;
  EXPECT_EQ(attach({good}), grpc::StatusCode::OK);
  EXPECT_EQ(attach({kDay}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach({""}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach({"Bearer "}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach({std::string("Basic ") + kDay}),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(attach({good, good}), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(UnixTokenTest, TheSocketIsForOwnerAndGroup) {
  ASSERT_NE(server_, nullptr);
  struct stat found;
  ASSERT_EQ(stat("tokens.sock", &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0660u);
}

TEST_F(UnixTokenTest, ServersCallEachOtherWithTheJobsToken) {
  ASSERT_NE(server_, nullptr);
  const auto caller = [](const ChannelSecurity& security) {
    return MakeGrpcPeerCaller([security] { return security; });
  };
  EXPECT_TRUE(caller(With(kDay))->Attach(kAddress).ok());
  EXPECT_EQ(caller({})->Attach(kAddress).status().code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(TokenTest, OverTlsNeedsNoClientCertificate) {
  const TestAuthority ca("cluster");
  v1::Security security = DaySecurity();
  SetIdentity(ca.Issue({}), &security);
  const auto server = StartSmallServer("127.0.0.1:0", security);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->addresses()[0];
  ChannelSecurity client = With(kDay);
  client.ca = ca.cert();
  const absl::Status pulled = TryPull(address, client);
  EXPECT_TRUE(pulled.ok()) << pulled;
  client.token = kNight;
  EXPECT_EQ(TryAttach(address, client).code(),
            absl::StatusCode::kPermissionDenied);
  client.token.clear();
  EXPECT_EQ(TryAttach(address, client).code(),
            absl::StatusCode::kUnauthenticated);
}

TEST(TokenTest, RefusesTokensOverPlainTcp) {
  const auto server = StartSmallServer("127.0.0.1:0", DaySecurity());
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()),
              AllOf(HasSubstr("serve.listen"), HasSubstr("tokens_file"),
                    HasSubstr("security.tls")));
  const absl::Status client = TryAttach("127.0.0.1:1", With(kDay));
  EXPECT_EQ(client.code(), absl::StatusCode::kInvalidArgument) << client;
}

TEST(TokenTest, NamesAFaultyTokensFileBeforeServing) {
  v1::Security security = DaySecurity();
  security.set_tokens_file("/no/tokens");
  EXPECT_THAT(std::string(StartSmallServer("unix:/tmp/never.sock", security)
                              .status()
                              .message()),
              HasSubstr("security.tokens_file: /no/tokens: "));
}

}  // namespace
}  // namespace ballast
