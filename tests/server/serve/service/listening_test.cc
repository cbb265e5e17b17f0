#include "server/serve/service/listening.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/schedule/scheduler.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RehearsalTest : public ::testing::Test {
 protected:
  RehearsalTest() {
    auto builder = std::make_unique<FakeSampleBuilder>();
    builder_ = builder.get();
    auto loader =
        Loader::Create(config_, 4, scheduler_.get(), std::move(builder));
    EXPECT_TRUE(loader.ok()) << loader.status();
    loader_ = *std::move(loader);
  }

  static v1::Role Role(v1::Module module, uint32_t rank) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    return role;
  }

  // Steps of 16 samples in micro-batches of 8, dp 2.
  const v1::Config config_ = JobConfig(2, 2, 16, 8);
  const FakeSourceIndex index_{FormulaSamples(97)};
  const std::unique_ptr<Scheduler> scheduler_ =
      *Scheduler::Create(config_, {&index_});
  FakeSampleBuilder* builder_ = nullptr;
  std::shared_ptr<Loader> loader_;
};

TEST_F(RehearsalTest, BuildsTheFirstBlocksAndReleasesThem) {
  const absl::Status status =
      Rehearse(loader_.get(),
               {Role(v1::MODULE_VISION, 0), Role(v1::MODULE_LANGUAGE, 1)});
  EXPECT_TRUE(status.ok()) << status;
  // Half of micro-batch 0 for each role; nothing beyond it is awaited.
  EXPECT_GE(builder_->builds(), 8u);
  EXPECT_LT(*builder_->begun().begin(), 8u);
  EXPECT_EQ(loader_->open_streams(), 0u);
}

TEST_F(RehearsalTest, WaitsUntilTheBlocksAreBuilt) {
  builder_->ShutGate();
  std::atomic<bool> done = false;
  std::thread thread([&] {
    EXPECT_TRUE(Rehearse(loader_.get(), {Role(v1::MODULE_VISION, 0)}).ok());
    done = true;
  });
  builder_->AwaitWorking(1);
  EXPECT_FALSE(done);
  builder_->OpenGate();
  thread.join();
}

TEST_F(RehearsalTest, NamesTheBlockThatCannotBeBuilt) {
  for (uint64_t position = 0; position < 8; ++position) {
    builder_->FailAt(position);
  }
  const absl::Status status =
      Rehearse(loader_.get(), {Role(v1::MODULE_LANGUAGE, 1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the first block of language rank 1: "),
                    HasSubstr("told to fail")));
}

// A socket that listens at `path`.
int ListenAt(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(listen(fd, 1), 0);
  return fd;
}

// Changes to the test's directory and uses relative paths, since paths of
// sockets are short and that of the directory is long.
class SocketFileTest : public ::testing::Test {
 protected:
  SocketFileTest() { EXPECT_EQ(chdir(::testing::TempDir().c_str()), 0); }
};

bool Exists(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0;
}

absl::Status Check(const std::string& address, bool tls, bool tokens,
                   bool insecure) {
  v1::Security security;
  if (tls) security.mutable_tls()->set_client_ca("ca.pem");
  if (tokens) security.set_tokens_file("tokens");
  security.set_insecure(insecure);
  return CheckListen(address, security);
}

TEST(ListenAddressTest, RefusesToServeOtherMachinesUnsecured) {
  for (const char* address : {"unix:/run/a.sock", "127.0.0.1:0", "127.1.2.3:70",
                              "localhost:7070", "[::1]:7"}) {
    EXPECT_TRUE(Check(address, false, false, false).ok()) << address;
  }
  for (const char* address :
       {"0.0.0.0:7070", "[::]:7070", "node1:7070", "127.0.0.1.example:7070"}) {
    const absl::Status status = Check(address, false, false, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("serve.listen"), HasSubstr(address),
                      HasSubstr("security.tls"), HasSubstr("insecure")));
    EXPECT_TRUE(Check(address, false, false, true).ok()) << address;
    EXPECT_TRUE(Check(address, true, false, false).ok()) << address;
  }
  for (const char* address : {"", "unix:", "7070", ":7070"}) {
    EXPECT_EQ(Check(address, true, false, true).code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(ListenAddressTest, TokensNeedTlsOrASocket) {
  EXPECT_TRUE(Check("unix:/run/a.sock", false, true, false).ok());
  EXPECT_TRUE(Check("127.0.0.1:0", true, true, false).ok());
  for (const bool insecure : {false, true}) {
    EXPECT_FALSE(Check("127.0.0.1:0", false, true, insecure).ok());
    EXPECT_FALSE(Check("0.0.0.0:0", false, true, insecure).ok());
  }
}

TEST_F(SocketFileTest, ReportsTheSystemsReasonForNotListening) {
  EXPECT_TRUE(TryListen("127.0.0.1:0").ok());
  EXPECT_TRUE(TryListen("unix:free.sock").ok());
  EXPECT_FALSE(Exists("free.sock"));
  const auto message = [](const std::string& address) {
    return std::string(TryListen(address).message());
  };
  EXPECT_THAT(message("unix:/no/such/folder/a.sock"),
              AllOf(HasSubstr("unix:/no/such/folder/a.sock"),
                    HasSubstr("No such file or directory")));
  // An address that no machine has: reserved for documentation.
  EXPECT_THAT(message("192.0.2.1:0"),
              AllOf(HasSubstr("192.0.2.1:0"),
                    HasSubstr("Cannot assign requested address")));
  const int fd = ListenAt("taken.sock");
  EXPECT_THAT(message("unix:taken.sock"),
              AllOf(HasSubstr("unix:taken.sock"), HasSubstr("in use")));
  close(fd);
}

TEST_F(SocketFileTest, AcceptsAMissingFile) {
  EXPECT_TRUE(RemoveStaleSocket("none.sock").ok());
}

TEST_F(SocketFileTest, RemovesASocketLeftBehind) {
  const std::string path = "stale.sock";
  close(ListenAt(path));
  ASSERT_TRUE(Exists(path));
  EXPECT_TRUE(RemoveStaleSocket(path).ok());
  EXPECT_FALSE(Exists(path));
}

TEST_F(SocketFileTest, KeepsASocketThatAnswers) {
  const std::string path = "alive.sock";
  const int fd = ListenAt(path);
  const absl::Status status = RemoveStaleSocket(path);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_TRUE(Exists(path));
  close(fd);
  unlink(path.c_str());
}

TEST_F(SocketFileTest, KeepsAFile) {
  const std::string path = "file.sock";
  std::ofstream(path) << "precious";
  EXPECT_EQ(RemoveStaleSocket(path).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Exists(path));
}

TEST_F(SocketFileTest, RefusesAPathTooLongForASocket) {
  EXPECT_EQ(RemoveStaleSocket("/" + std::string(200, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ListenAddressTest, ReplacesThePort) {
  EXPECT_EQ(WithPort("127.0.0.1:0", 4711), "127.0.0.1:4711");
  EXPECT_EQ(WithPort("[::1]:0", 4711), "[::1]:4711");
}

}  // namespace
}  // namespace ballast
