// The command `serve`, as a process.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/schedule_service.grpc.pb.h"
#include "server/config/config_loader.h"
#include "server/service/index_sources.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kProgram[] = "tests/server/command/serve_main";

// A running program. Standard output and error are pipes.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments) {
    int out[2], err[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(err), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    for (const int fd : {out[0], out[1], err[0], err[1]}) {
      posix_spawn_file_actions_addclose(&actions, fd);
    }
    arguments.insert(arguments.begin(), kProgram);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(
        posix_spawn(&pid_, kProgram, &actions, nullptr, argv.data(), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    out_ = fdopen(out[0], "r");
    err_ = fdopen(err[0], "r");
  }
  ~Process() {
    fclose(out_);
    fclose(err_);
  }

  std::string ReadLine() { return ReadFrom(out_, '\n'); }
  std::string ReadErrors() { return ReadFrom(err_, EOF); }
  void Signal(int signal) { kill(pid_, signal); }
  // The exit status; -1 when a signal killed it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  static std::string ReadFrom(FILE* file, int end) {
    std::string text;
    int c;
    while ((c = fgetc(file)) != EOF && c != end) text += static_cast<char>(c);
    return text;
  }

  pid_t pid_ = 0;
  FILE* out_ = nullptr;
  FILE* err_ = nullptr;
};

// Writes a source of texts and a configuration; returns the latter's path.
std::string WriteJob(const std::string& more) {
  const std::string directory = ::testing::TempDir();
  std::ofstream lines(directory + "/texts.jsonl");
  for (int i = 0; i < 8; ++i) {
    lines << R"({"conversations": [{"from": "human", "value": "What?"}, )"
          << R"({"from": "gpt", "value": "Number )" << i << "\"}]}\n";
  }
  const std::string path = directory + "/job.yaml";
  std::ofstream(path)
      << "sources: [{name: texts, format: jsonl, path: texts.jsonl}]\n"
      << "batch: {global: 4, micro: 2}\n"
      << "topology: {modules: {language: {dp: 2}}}\n"
      << "serve: {listen: [\"127.0.0.1:0\"], threads: 1}\n"
      << more;
  return path;
}

std::string IndexedJob() {
  const std::string path = WriteJob("");
  const auto config = LoadConfig(path);
  EXPECT_TRUE(config.ok()) << config.status();
  const auto indexed = IndexSources(*config, {});
  EXPECT_TRUE(indexed.ok()) << indexed.status();
  return path;
}

TEST(ServeTest, ServesUntilASignalAndExitsWithZero) {
  const std::string path = IndexedJob();
  for (const int signal : {SIGTERM, SIGINT}) {
    Process process({"serve", "--config", path});
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

TEST(ServeTest, ListenTakesThePlaceOfTheConfigurations) {
  Process process({"serve", "--config", IndexedJob(), "--listen", "127.0.0.1:0",
                   "127.0.0.2:0"});
  EXPECT_THAT(
      process.ReadLine(),
      ::testing::MatchesRegex("ready 127.0.0.1:[0-9]+ 127.0.0.2:[0-9]+"));
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(ServeTest, AnAddressThatIsTakenIsNamedWithTheReason) {
  const std::string path = IndexedJob();
  Process first({"serve", "--config", path});
  const std::string address =
      first.ReadLine().substr(std::string("ready ").size());
  Process second({"serve", "--config", path, "--listen", address});
  EXPECT_EQ(second.Wait(), 1);
  const std::string errors = second.ReadErrors();
  EXPECT_THAT(errors, HasSubstr("cannot listen at " + address));
  EXPECT_THAT(errors, HasSubstr("Address already in use"));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 0);
}

TEST(ServeTest, OtherMachinesAreLetInByNoOptionEither) {
  Process process({"serve", "--config", IndexedJob(), "--listen", "0.0.0.0:0"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(), HasSubstr("security.tls"));
}

TEST(ServeTest, WithoutAnIndexItSaysHowToMakeOne) {
  const std::string path = WriteJob("order: {seed: 5}\n");
  unlink((::testing::TempDir() + "/.ballast/texts.index").c_str());
  Process process({"serve", "--config", path});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.ReadErrors(), HasSubstr("ballast-server index"));
}

}  // namespace
}  // namespace ballast
