// Measures the memory of a real server process under 64 clients. One of them
// stops reading its stream, and one keeps its blocks in shared memory.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/batch_fetcher.h"
#include "client/loader_client.h"

namespace ballast {
namespace {

constexpr uint32_t kClients = 64;
constexpr uint64_t kMemoryMib = 384;
constexpr uint64_t kMemorySteps = 12;
// Blocks of 2.3 MiB: two fit into a client's share of 6 MiB, and all clients
// together pull five times the server's memory.
constexpr uint64_t kPlenty = uint64_t{1} << 40;

class ServerProcess {
 public:
  explicit ServerProcess(const std::string& arena) {
    char path[] = "/tmp/ballast-memory-XXXXXX";
    EXPECT_NE(mkdtemp(path), nullptr);
    directory_ = path;
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> arguments = {
        "tests/integration/memory_server", directory_ + "/s",
        arena == "on" ? directory_ : arena, absl::StrCat(kMemoryMib),
        absl::StrCat(kClients)};
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, pointers[0], &actions, nullptr,
                          pointers.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    char byte = 0;
    while (read(out[0], &byte, 1) == 1 && byte != '\n') fingerprint_ += byte;
    close(out[0]);
    absl::string_view line = fingerprint_;
    EXPECT_TRUE(absl::ConsumePrefix(&line, "ready ")) << fingerprint_;
    fingerprint_ = std::string(line);
  }
  ~ServerProcess() {
    close(input_);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
    std::filesystem::remove_all(directory_);
  }

  std::string address() const { return "unix:" + directory_ + "/s"; }
  const std::string& fingerprint() const { return fingerprint_; }

  // The peak of the resident memory.
  uint64_t PeakMib() const {
    std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
    for (std::string line; std::getline(status, line);) {
      absl::string_view text = line;
      uint64_t kib = 0;
      if (absl::ConsumePrefix(&text, "VmHWM:") &&
          absl::ConsumeSuffix(&text, " kB") && absl::SimpleAtoi(text, &kib)) {
        return kib / 1024;
      }
    }
    return 0;
  }

 private:
  std::string directory_;
  pid_t pid_ = 0;
  int input_ = -1;
  std::string fingerprint_;
};

class MemoryTest : public ::testing::TestWithParam<const char*> {};

TEST_P(MemoryTest, StaysWithinTheBoundAndServesTheOthers) {
  ServerProcess server(GetParam());
  const auto open = [&](LoaderClient* client, uint32_t rank) {
    FetchRequest request;
    request.role.set_module(v1::MODULE_VISION);
    request.role.set_dp_rank(rank);
    request.steps = kMemorySteps;
    request.fingerprint = server.fingerprint();
    request.max_bytes = kPlenty;
    // If there is an arena, every other client does not use it.
    request.accept_shared_memory = rank % 2 == 0;
    return *client->OpenPull(request);
  };
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (uint32_t rank = 0; rank < kClients; ++rank) {
    clients.push_back(LoaderClient::Create(server.address()));
  }
  // Client 0 keeps all its blocks; client 1 reads one block and stops.
  const auto keeper = open(clients[0].get(), 0);
  std::vector<std::unique_ptr<FetchedBlock>> kept;
  const auto stopped = open(clients[1].get(), 1);
  ASSERT_TRUE(stopped->Fetch().ok());

  std::vector<uint64_t> fetched(kClients, 0);
  std::vector<std::thread> threads;
  for (uint32_t rank = 2; rank < kClients; ++rank) {
    threads.emplace_back([&, rank] {
      const auto fetcher = open(clients[rank].get(), rank);
      while (fetcher->Fetch().ok()) ++fetched[rank];
    });
  }
  for (uint64_t step = 0; step < kMemorySteps; ++step) {
    auto block = keeper->Fetch();
    ASSERT_TRUE(block.ok()) << block.status();
    kept.push_back(*std::move(block));
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t rank = 2; rank < kClients; ++rank) {
    EXPECT_EQ(fetched[rank], kMemorySteps) << "client " << rank;
  }
  for (const auto& block : kept) EXPECT_TRUE(block->intact());
  RecordProperty("peak_mib", static_cast<int>(server.PeakMib()));
#if !defined(BALLAST_ASAN) && !defined(BALLAST_TSAN)
  EXPECT_GT(server.PeakMib(), kMemoryMib / 2);
  EXPECT_LE(server.PeakMib(), kMemoryMib * 12 / 10);
#endif
  kept.clear();
}

INSTANTIATE_TEST_SUITE_P(Arenas, MemoryTest, ::testing::Values("on", "off"));

}  // namespace
}  // namespace ballast
