#include "server/command/commands.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/schedule_service.grpc.pb.h"
#include "server/config/config_loader.h"
#include "server/job/index_sources.h"
#include "tests/fakes/test_certificates.h"
#include "tests/server/command/serve_process.h"

// Tests of the command `serve` as a process.

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ServeTest, ServesUntilASignalAndExitsWithZero) {
  const std::string path = IndexedJob();
  for (const int signal : {SIGTERM, SIGINT}) {
    ServeProcess process({"serve", "--config", path});
    const std::string ready = process.ReadLine();
    ASSERT_THAT(ready, StartsWith("ready 127.0.0.1:"));
    const auto stub = v1::ScheduleService::NewStub(
        grpc::CreateChannel(ready.substr(std::string("ready ").size()),
                            grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::GetScheduleRequest request;
    v1::GetScheduleResponse response;
    const grpc::Status status = stub->GetSchedule(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.schedule().micro_batches_size(), 2);
    process.Signal(signal);
    EXPECT_EQ(process.Wait(), 0);
  }
}

TEST(ServeTest, ListenOptionReplacesTheConfigurations) {
  ServeProcess process({"serve", "--config", IndexedJob(), "--listen",
                        "127.0.0.1:0", "127.0.0.2:0"});
  EXPECT_THAT(
      process.ReadLine(),
      ::testing::MatchesRegex("ready 127.0.0.1:[0-9]+ 127.0.0.2:[0-9]+"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

// A server of a cluster's configuration, tried on one machine.
TEST(ServeTest, ListenIsNotCheckedWhereTheOptionReplacesIt) {
  IndexedJob();
  const std::string path =
      WriteJob("serve: {listen: [\"0.0.0.0:7070\"], threads: 1}\n");
  ServeProcess refused({"serve", "--config", path});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.ReadErrors(), HasSubstr("serve.listen[0]: found"));
  ServeProcess process({"serve", "--config", path, "--listen", "127.0.0.1:0"});
  EXPECT_THAT(process.ReadLine(), StartsWith("ready 127.0.0.1:"));
  // A reload reads the same.
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("reloaded"), HasSubstr(path));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(ServeTest, AnAddressInUseIsNamedWithTheReason) {
  const std::string path = IndexedJob();
  ServeProcess first({"serve", "--config", path});
  const std::string address =
      first.ReadLine().substr(std::string("ready ").size());
  ServeProcess second({"serve", "--config", path, "--listen", address});
  EXPECT_EQ(second.Wait(), 1);
  const std::string errors = second.ReadErrors();
  EXPECT_THAT(errors, HasSubstr("cannot listen at " + address));
  EXPECT_THAT(errors, HasSubstr("Address already in use"));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 0);
}

TEST(ServeTest, ListenOptionCannotOpenTheServerToOtherMachines) {
  ServeProcess process(
      {"serve", "--config", IndexedJob(), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(), HasSubstr("security.tls"));
}

TEST(ServeTest, SighupReloadsTheConfiguration) {
  const auto job = [](const std::string& serve, const std::string& more) {
    return "serve: {listen: [\"127.0.0.1:0\"], threads: 1" + serve + "}\n" +
           more;
  };
  ServeProcess process({"serve", "--config", IndexedJob(job("", ""))});
  ASSERT_THAT(process.ReadLine(), StartsWith("ready "));

  WriteJob(job(", stall_after: 3, log_level: debug", ""));
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"), StartsWith("I "));
  WriteJob(job(", stall_after: 3, log_level: debug, memory: 1GiB", ""));
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"),
              AllOf(StartsWith("E "), HasSubstr("not reloaded"),
                    HasSubstr("serve.memory is 8589934592 in this server and "
                              "1073741824 in the file; that takes a restart")));

  WriteJob(job("", "order: {seed: 5}\n"));
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"),
              AllOf(HasSubstr("order.seed is 1234 in this server and 5 in the "
                              "file"),
                    HasSubstr("restart them all")));

  WriteJob(job(", lisen: 1", ""));
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"),
              HasSubstr("serve.lisen: unknown key"));

  WriteJob(job(", log_level: info", ""));
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"), StartsWith("I "));
  process.Signal(SIGTERM);
  EXPECT_THAT(process.AwaitLog("draining"), HasSubstr("SIGTERM: draining"));
  EXPECT_EQ(process.Wait(), 0);
}

// The service manager's side of sd_notify(3).
class Manager {
 public:
  Manager() : name_("@ballast-serve-test-" + std::to_string(getpid())) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, name_.size() - 1, 1);
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + name_.size()),
              0);
    setenv("NOTIFY_SOCKET", name_.c_str(), 1);
    setenv("WATCHDOG_USEC", "20000", 1);
  }
  ~Manager() {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    close(socket_);
  }
  // The next message other than WATCHDOG=1.
  std::string Receive() {
    std::string state = "WATCHDOG=1";
    while (state == "WATCHDOG=1") state = ReceiveAny();
    return state;
  }
  std::string ReceiveAny() {
    char buffer[512];
    const ssize_t bytes = recv(socket_, buffer, sizeof(buffer), 0);
    return std::string(buffer, bytes < 0 ? 0 : bytes);
  }

 private:
  const std::string name_;
  int socket_ = -1;
};

TEST(ServeTest, ReportsItsStateToTheServiceManager) {
  Manager manager;
  const std::string path = IndexedJob();
  ServeProcess process({"serve", "--config", path});
  const std::string ready = process.ReadLine();
  EXPECT_EQ(manager.ReceiveAny(),
            "READY=1\nSTATUS=serving at " +
                ready.substr(std::string("ready ").size()));
  EXPECT_EQ(manager.ReceiveAny(), "WATCHDOG=1");
  process.Signal(SIGHUP);
  EXPECT_THAT(manager.Receive(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_EQ(manager.Receive(), "READY=1");
  process.Signal(SIGTERM);
  EXPECT_EQ(manager.Receive(), "STOPPING=1\nSTATUS=draining");
  EXPECT_EQ(process.Wait(), 0);
}

// Replaces a file atomically, so that no check sees half of it.
void Replace(const std::string& name, const std::string& text) {
  const std::string written = WriteTestFile(name + ".new", text);
  const std::string path = ::testing::TempDir() + "/" + name;
  ASSERT_EQ(rename(written.c_str(), path.c_str()), 0);
}

// A job over TLS with `identity`, whose files are serve.pem and serve.key.
std::string JobOverTls(const TlsIdentity& identity) {
  return IndexedJob(
      "security: {tls: {cert: " + WriteTestFile("serve.pem", identity.cert) +
      ", key: " + WriteTestFile("serve.key", identity.key) + "}}\n");
}

TEST(ServeTest, SighupReloadsTheCertificates) {
  const TestAuthority ca("cluster");
  ServeProcess process({"serve", "--config", JobOverTls(ca.Issue({}))});
  ASSERT_THAT(process.ReadLine(), StartsWith("ready "));

  const TlsIdentity renewed = ca.Issue({});
  Replace("serve.pem", renewed.cert);
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("eloaded"),
              AllOf(StartsWith("E "),
                    HasSubstr("not reloaded, nothing has changed: "
                              "security.tls.key: "),
                    HasSubstr("is not the key of the certificate")));
  Replace("serve.key", renewed.key);
  process.Signal(SIGHUP);
  EXPECT_THAT(process.AwaitLog("security.tls"),
              AllOf(StartsWith("I "), HasSubstr("use the new files"),
                    HasSubstr("serve.pem is valid until ")));
  EXPECT_THAT(process.AwaitLog("eloaded"), StartsWith("I "));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

// With a watchdog the server looks at its files with each sign of life.
TEST(ServeTest, ChangedCertificatesAreReloadedWithoutASignal) {
  Manager manager;
  const TestAuthority ca("cluster");
  ServeProcess process({"serve", "--config", JobOverTls(ca.Issue({}))});
  ASSERT_THAT(process.ReadLine(), StartsWith("ready "));

  const TlsIdentity renewed = ca.Issue({});
  Replace("serve.pem", renewed.cert);
  EXPECT_THAT(process.AwaitLog("security.tls"),
              AllOf(StartsWith("E "), HasSubstr("the previous certificates"),
                    HasSubstr("is not the key of the certificate")));
  // Later checks find the same fault and log nothing.
  EXPECT_EQ(manager.ReceiveAny().substr(0, 8), "READY=1\n");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(manager.ReceiveAny(), "WATCHDOG=1");
  Replace("serve.key", renewed.key);
  EXPECT_THAT(process.AwaitLog("security.tls"),
              AllOf(StartsWith("I "), HasSubstr("use the new files")));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

using Stream = grpc::ClientReaderWriter<v1::PullRequest, v1::PullResponse>;

// Pulls `steps` steps of language rank 0.
std::unique_ptr<Stream> OpenPull(v1::LoaderService::Stub* stub,
                                 grpc::ClientContext* context, uint64_t steps) {
  v1::AttachResponse attached;
  grpc::ClientContext attach;
  EXPECT_TRUE(stub->Attach(&attach, v1::AttachRequest(), &attached).ok());
  std::unique_ptr<Stream> stream = stub->Pull(context);
  v1::PullRequest request;
  request.mutable_open()->mutable_role()->set_module(v1::MODULE_LANGUAGE);
  request.mutable_open()->set_steps(steps);
  request.mutable_open()->set_fingerprint(attached.fingerprint().hash());
  request.mutable_open()->set_credit(1 << 30);
  EXPECT_TRUE(stream->Write(request));
  return stream;
}

void EndPull(Stream* stream, grpc::ClientContext* context) {
  v1::PullResponse response;
  context->TryCancel();
  while (stream->Read(&response)) {
  }
  stream->Finish();
}

// A server with a stream of a block of several megabytes, whose client does not
// read.
class UnreadServer {
 public:
  UnreadServer() : process_({"serve", "--config", Job()}) {
    const std::string ready = process_.ReadLine();
    EXPECT_THAT(ready, StartsWith("ready "));
    stub_ = v1::LoaderService::NewStub(
        grpc::CreateChannel(ready.substr(std::string("ready ").size()),
                            grpc::InsecureChannelCredentials()));
    stream_ = OpenPull(stub_.get(), &context_, 1);
    v1::PullResponse first;
    EXPECT_TRUE(stream_->Read(&first));
    process_.Signal(SIGTERM);
    EXPECT_THAT(process_.AwaitLog("draining"), HasSubstr("1 streams are open"));
  }
  ~UnreadServer() { EndPull(stream_.get(), &context_); }

  ServeProcess& process() { return process_; }

 private:
  static std::string Job() {
    const std::string path = ::testing::TempDir() + "/large.yaml";
    std::ofstream(::testing::TempDir() + "/large.jsonl")
        << R"({"conversations": [{"from": "human", "value": "What?"}, )"
        << R"({"from": "gpt", "value": ")" << std::string(1 << 20, 'x')
        << "\"}]}\n";
    std::ofstream(path)
        << "sources: [{name: large, format: jsonl, path: large.jsonl}]\n"
        << "batch: {global: 2, micro: 2, max_tokens: 2097152}\n"
        << "topology: {modules: {language: {dp: 1}}}\n"
        << "balance: {delivery: off}\n"
        << "serve: {listen: [\"127.0.0.1:0\"], threads: 1}\n";
    const auto config = LoadConfig(path);
    EXPECT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(IndexSources(*config, {}).ok());
    return path;
  }

  ServeProcess process_;
  std::unique_ptr<v1::LoaderService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(ServeTest, ASecondSignalEndsADrainAtOnce) {
  UnreadServer server;
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 128 + SIGTERM);
  EXPECT_THAT(server.process().ReadErrors(),
              HasSubstr("while draining: ends at once"));
}

TEST(ServeTest, AClientThatDoesNotReadIsLeftInTime) {
  UnreadServer server;
  EXPECT_EQ(server.process().Wait(), 0);
  EXPECT_THAT(server.process().ReadErrors(), HasSubstr("drained in "));
}

// A server with a stream that waits for a text, since the processes that encode
// it are stopped.
class BlockedServer {
 public:
  BlockedServer()
      : process_({"serve", "--config",
                  IndexedJob(absl::StrCat(
                      "serve: {listen: [\"127.0.0.1:0\"], threads: 1, "
                      "stall_after: 1}\n"
                      "model: {profile: qwen2_5_vl, chat_template: chatml, "
                      "tokenizer: ",
                      std::filesystem::current_path().string(),
                      "/tests/server/text/sentencepiece/testdata/"
                      "symbols.model}\n"))}) {
    const std::string ready = process_.ReadLine();
    EXPECT_THAT(ready, StartsWith("ready "));
    process_.SignalChildren(SIGSTOP);
    stub_ = v1::LoaderService::NewStub(
        grpc::CreateChannel(ready.substr(std::string("ready ").size()),
                            grpc::InsecureChannelCredentials()));
    stream_ = OpenPull(stub_.get(), &context_, 1000);
    EXPECT_THAT(process_.AwaitLog("stall: "), HasSubstr("tokenis"));
  }
  ~BlockedServer() { EndPull(stream_.get(), &context_); }

  ServeProcess& process() { return process_; }

 private:
  ServeProcess process_;
  std::unique_ptr<v1::LoaderService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<Stream> stream_;
};

TEST(ServeTest, ABlockedThreadDoesNotKeepTheProcess) {
  BlockedServer server;
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0);
  EXPECT_THAT(server.process().ReadErrors(),
              AllOf(HasSubstr("drained in "),
                    HasSubstr("closing: ends now, 10s after the signal: all "
                              "streams have ended, but a thread is still "
                              "blocked")));
}

TEST(ServeTest, ASecondSignalEndsABlockedProcessAfterItHasDrained) {
  BlockedServer server;
  server.process().Signal(SIGTERM);
  EXPECT_THAT(server.process().AwaitLog("drained in "), HasSubstr("drained"));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 128 + SIGTERM);
  EXPECT_THAT(server.process().ReadErrors(),
              HasSubstr("SIGTERM while closing: ends at once"));
}

// A configuration on a file system that hangs: the main thread reads it for
// ever.
TEST(ServeTest, SignalsActWhileAFileIsRead) {
  const std::string path = IndexedJob();
  const std::string fifo = path + ".fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  {
    ServeProcess process({"serve", "--config", fifo});
    // Blocks until the process opens it, too.
    const int end = open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
    process.Signal(SIGTERM);
    EXPECT_EQ(process.Wait(), 128 + SIGTERM);
    EXPECT_THAT(process.ReadErrors(),
                HasSubstr("SIGTERM while starting: ends at once"));
    close(end);
  }
  ServeProcess process({"serve", "--config", path});
  ASSERT_THAT(process.ReadLine(), StartsWith("ready "));
  ASSERT_EQ(rename(fifo.c_str(), path.c_str()), 0);
  process.Signal(SIGHUP);
  const int end = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(),
              HasSubstr("draining: ends now, 10s after the signal"));
  close(end);
  unlink(path.c_str());
}

TEST(ServeTest, IsNotReadyIfTheFirstBlocksCannotBeBuilt) {
  const std::string path =
      IndexedJob("serve: {listen: [\"127.0.0.1:0\"], on_bad_sample: error}\n");
  // The file's size and time stay as indexed; only the text changes.
  const std::string file = ::testing::TempDir() + "/texts.jsonl";
  struct stat before;
  ASSERT_EQ(stat(file.c_str(), &before), 0);
  std::ofstream(file, std::ios::in) << std::string(before.st_size, 'x');
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  ServeProcess process({"serve", "--config", path});
  EXPECT_EQ(process.ReadLine(), "");
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(),
              HasSubstr("cannot build the first block of language rank 0: "));
}

TEST(ServeTest, AMissingIndexIsNamedWithTheCommandThatBuildsIt) {
  const std::string path = WriteJob("order: {seed: 5}\n");
  std::filesystem::remove_all(::testing::TempDir() + "/.ballast");
  ServeProcess process({"serve", "--config", path});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(), HasSubstr("ballast-server index"));
}

using ::testing::HasSubstr;
using Act = SignalRule::Act;
using Phase = SignalRule::Phase;

constexpr absl::Duration kPromised = absl::Seconds(10);
const absl::Time kStart = absl::UnixEpoch();

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

TEST(SignalRuleTest, AServerThatStartsEndsAtOnce) {
  SignalRule rule(kPromised);
  EXPECT_EQ(rule.deadline(), absl::InfiniteFuture());
  EXPECT_EQ(rule.OnSignal(SIGHUP, At(0)), Act::kReload);
  EXPECT_EQ(rule.OnSignal(SIGINT, At(1)), Act::kEnd);
  EXPECT_EQ(rule.exit_status(), 130);
  EXPECT_EQ(rule.reason(), "SIGINT while starting: ends at once");
}

TEST(SignalRuleTest, SignalsWithinATenthOfASecondAreOne) {
  SignalRule rule(kPromised);
  rule.SetPhase(Phase::kServing);
  EXPECT_EQ(rule.OnSignal(SIGTERM, At(5)), Act::kNone);
  EXPECT_EQ(rule.deadline(), At(5.1));
  EXPECT_EQ(rule.OnSignal(SIGTERM, At(5.05)), Act::kNone);
  EXPECT_EQ(rule.OnTime(At(5.05)), Act::kNone);
  EXPECT_EQ(rule.OnTime(At(5.1)), Act::kDrain);
  EXPECT_EQ(rule.signal(), SIGTERM);
  EXPECT_EQ(rule.deadline(), At(15));
  EXPECT_EQ(rule.OnSignal(SIGHUP, At(5.2)), Act::kNone);
}

TEST(SignalRuleTest, ASecondSignalEndsAnyLaterPhase) {
  for (const auto& [phase, name] :
       std::initializer_list<std::pair<Phase, const char*>>{
           {Phase::kServing, "draining"},
           {Phase::kDraining, "draining"},
           {Phase::kClosing, "closing"}}) {
    SignalRule rule(kPromised);
    rule.SetPhase(Phase::kServing);
    rule.OnSignal(SIGTERM, At(0));
    rule.OnTime(At(0.1));
    rule.SetPhase(phase);
    EXPECT_EQ(rule.OnSignal(SIGINT, At(0.1)), Act::kEnd);
    EXPECT_EQ(rule.exit_status(), 130);
    EXPECT_EQ(rule.reason(),
              std::string("SIGINT while ") + name + ": ends at once");
  }
}

TEST(SignalRuleTest, ThePromisedTimeEndsAProcessThatIsBlocked) {
  for (const auto& [phase, status] :
       std::initializer_list<std::pair<Phase, int>>{
           {Phase::kServing, 1}, {Phase::kDraining, 1}, {Phase::kClosing, 0}}) {
    SignalRule rule(kPromised);
    rule.SetPhase(Phase::kServing);
    rule.OnSignal(SIGTERM, At(0));
    EXPECT_EQ(rule.OnTime(At(0.1)), Act::kDrain);
    rule.SetPhase(phase);
    EXPECT_EQ(rule.OnTime(At(9.9)), Act::kNone);
    EXPECT_EQ(rule.OnTime(At(10)), Act::kEnd);
    EXPECT_EQ(rule.exit_status(), status);
    EXPECT_THAT(rule.reason(), HasSubstr("10s after the signal"));
    EXPECT_THAT(rule.reason(), HasSubstr("blocked"));
  }
}

}  // namespace

}  // namespace ballast
