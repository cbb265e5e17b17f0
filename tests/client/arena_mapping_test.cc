#include "client/arena_mapping.h"

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/delivery/arena.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uid_t kOtherUser = 65534;  // nobody

class ArenaMappingTest : public ::testing::Test {
 protected:
  ArenaMappingTest() {
    std::filesystem::create_directories(directory_);
    arena_ = *Arena::CreateShared(directory_, kMiB);
  }
  absl::StatusOr<std::shared_ptr<const ArenaMapping>> Open() {
    return ArenaMapping::Open(identity().path, identity().bytes, identity().id);
  }
  const ArenaIdentity& identity() const { return *arena_->identity(); }
  // The status of Open in an unprivileged child process, since root may read
  // everything. The child enters the directory first, which an unprivileged
  // user may be unable to reach.
  std::string OpenUnprivileged() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const bool ready = chdir(directory_.c_str()) == 0 &&
                         (geteuid() != 0 ||
                          (setgroups(0, nullptr) == 0 &&
                           setresgid(kOtherUser, kOtherUser, kOtherUser) == 0 &&
                           setresuid(kOtherUser, kOtherUser, kOtherUser) == 0));
      const std::string name =
          std::filesystem::path(identity().path).filename();
      const std::string status =
          ready ? ArenaMapping::Open(name, identity().bytes, identity().id)
                      .status()
                      .ToString()
                : "cannot become another user";
      _exit(write(ends[1], status.data(), status.size()) < 0);
    }
    close(ends[1]);
    std::string status(4096, '\0');
    const ssize_t got = read(ends[0], status.data(), status.size());
    close(ends[0]);
    waitpid(child, nullptr, 0);
    status.resize(std::max<ssize_t>(got, 0));
    return status;
  }
  static void ExpectError(const absl::Status& status, absl::StatusCode code,
                          const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  const std::string directory_ = ::testing::TempDir() + "/mapped";
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaMappingTest, ReadsBlocksAndStamps) {
  const auto mapping = Open();
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_TRUE((*mapping)->read_only());
  EXPECT_EQ((*mapping)->bytes().size(), kMiB);
  EXPECT_EQ((*mapping)->nonce(), identity().nonce);
  ASSERT_TRUE(arena_->EnsureReserved(kMiB).ok());
  std::memset(arena_->at(8192 + 256), 5, 1000);
  SetStamp(arena_->stamp(8192 + 256), 77);
  const auto block = (*mapping)->Block(8192 + 256, 1000);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ((*block)[999], 5);
  EXPECT_TRUE(StampHolds((*mapping)->stamp(8192 + 256), 77));
  SetStamp(arena_->stamp(8192 + 256), 0);
  EXPECT_FALSE(StampHolds((*mapping)->stamp(8192 + 256), 77));
}

TEST_F(ArenaMappingTest, BlocksLieWithinIt) {
  const auto mapping = *Open();
  EXPECT_TRUE(mapping->Block(4096 + 256, kMiB - 4096 - 256).ok());
  for (const auto& [offset, bytes] :
       std::vector<std::pair<uint64_t, uint64_t>>{{4096 + 256, kMiB - 4096},
                                                  {4096 + 256, UINT64_MAX},
                                                  {4096 + 256, 0},
                                                  {4096, 1},
                                                  {0, 1},
                                                  {8192 + 255, 1},
                                                  {kMiB, 1},
                                                  {kMiB + 256, 1},
                                                  {UINT64_MAX - 255, 256}}) {
    EXPECT_EQ(mapping->Block(offset, bytes).status().code(),
              absl::StatusCode::kInternal)
        << offset << " " << bytes;
  }
}

TEST_F(ArenaMappingTest, RefusesFilesThatAreNotTheArena) {
  const std::string& path = identity().path;
  ExpectError(ArenaMapping::Open(path + "x", kMiB, identity().id).status(),
              absl::StatusCode::kNotFound, "another machine");
  ExpectError(ArenaMapping::Open(path, kMiB + 4096, identity().id).status(),
              absl::StatusCode::kFailedPrecondition, "wanted 1052672");
  ExpectError(ArenaMapping::Open(path, kMiB, std::string(32, '0')).status(),
              absl::StatusCode::kFailedPrecondition, "another id");
  ExpectError(ArenaMapping::Open(directory_, 4096, "").status(),
              absl::StatusCode::kFailedPrecondition, "no file");
  ExpectError(ArenaMapping::Open("/dev/zero", 4096, "").status(),
              absl::StatusCode::kFailedPrecondition, "no file");
  const std::string other = directory_ + "/other";
  std::ofstream(other) << std::string(kMiB, 'x');
  ExpectError(ArenaMapping::Open(other, kMiB, identity().id).status(),
              absl::StatusCode::kFailedPrecondition, "header");
  const std::string link = directory_ + "/link";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(path, link);
  EXPECT_FALSE(ArenaMapping::Open(link, kMiB, identity().id).ok());
}

TEST_F(ArenaMappingTest, NeedsReadPermission) {
  const char* const path = identity().path.c_str();
  ASSERT_EQ(chmod(path, 0644), 0);
  EXPECT_EQ(OpenUnprivileged(), "OK");
  ASSERT_EQ(chmod(path, 0), 0);
  EXPECT_THAT(OpenUnprivileged(),
              AllOf(StartsWith("PERMISSION_DENIED"), HasSubstr("group")));
}

TEST_F(ArenaMappingTest, ConcurrentUsersShareOneMapping) {
  ArenaCache cache;
  const auto get = [&](const ArenaIdentity& arena) {
    return cache.Get("the server", arena.path, arena.bytes, arena.id);
  };
  const auto first = get(identity());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(get(identity()), first);
  // The server was restarted.
  const auto next = *Arena::CreateShared(directory_, kMiB);
  const auto second = get(*next->identity());
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
}

TEST_F(ArenaMappingTest, LogsOnceWhyItCannotBeMapped) {
  ArenaCache cache;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.Get("server a", directory_ + "/none", kMiB, "id"), nullptr);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("server a: blocks come over the stream"));
  EXPECT_THAT(log, HasSubstr(directory_ + "/none"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

}  // namespace
}  // namespace ballast
