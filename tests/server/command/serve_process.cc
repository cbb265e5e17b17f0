#include "tests/server/command/serve_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "server/config/config_loader.h"
#include "server/job/index_sources.h"

namespace ballast {
namespace {

constexpr char kProgram[] = "tests/server/command/serve_main";

std::string ReadUntil(FILE* file, int end) {
  std::string text;
  int c;
  while ((c = fgetc(file)) != EOF && c != end) text += static_cast<char>(c);
  return text;
}

}  // namespace

ServeProcess::ServeProcess(std::vector<std::string> arguments) {
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
      posix_spawn(&pid_, kProgram, &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  out_ = fdopen(out[0], "r");
  err_ = fdopen(err[0], "r");
}

ServeProcess::~ServeProcess() {
  fclose(out_);
  fclose(err_);
}

std::string ServeProcess::ReadLine() { return ReadUntil(out_, '\n'); }
std::string ServeProcess::ReadErrors() { return ReadUntil(err_, EOF); }

std::string ServeProcess::AwaitLog(const std::string& text) {
  std::string line;
  while (!(line = ReadUntil(err_, '\n')).empty()) {
    if (line.find(text) != std::string::npos) break;
  }
  return line;
}

void ServeProcess::Signal(int signal) { kill(pid_, signal); }

void ServeProcess::SignalChildren(int signal) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    pid_t id;
    std::string name;
    char state;
    pid_t parent;
    if (file >> id >> name >> state >> parent && parent == pid_) {
      kill(id, signal);
    }
  }
}

int ServeProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string WriteJob(const std::string& more) {
  const std::string directory = ::testing::TempDir();
  const std::string data = directory + "/texts.jsonl";
  // Always the same: written again, an index of it would be stale.
  if (!std::filesystem::exists(data)) {
    std::ofstream lines(data);
    for (int i = 0; i < 8; ++i) {
      lines << R"({"conversations": [{"from": "human", "value": "What?"}, )"
            << R"({"from": "gpt", "value": "Number )" << i << "\"}]}\n";
    }
  }
  const std::string path = directory + "/job.yaml";
  std::ofstream(path)
      << "sources: [{name: texts, format: jsonl, path: texts.jsonl}]\n"
      << "batch: {global: 4, micro: 2}\n"
      << "topology: {modules: {language: {dp: 2}}}\n"
      << (more.find("serve:") == std::string::npos
              ? "serve: {listen: [\"127.0.0.1:0\"], threads: 1}\n"
              : "")
      << more;
  return path;
}

std::string IndexedJob(const std::string& more) {
  const std::string path = WriteJob(more);
  const auto config = LoadConfig(path);
  EXPECT_TRUE(config.ok()) << config.status();
  const auto indexed = IndexSources(*config, {});
  EXPECT_TRUE(indexed.ok()) << indexed.status();
  return path;
}

}  // namespace ballast
