#include "server/delivery/arena.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class ArenaTest : public ::testing::Test {
 protected:
  ArenaTest() {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  int Files() const {
    return std::distance(std::filesystem::directory_iterator(directory_), {});
  }
  std::unique_ptr<Arena> Make(uint64_t bytes = kMiB) {
    auto arena = Arena::CreateShared(directory_, bytes);
    EXPECT_TRUE(arena.ok()) << arena.status();
    return *std::move(arena);
  }
  // Leaves an arena behind, as a killed server does.
  void LeaveStale() {
    const pid_t child = fork();
    if (child == 0) {
      const auto arena = Arena::CreateShared(directory_, kMiB);
      _exit(arena.ok() ? (raise(SIGKILL), 1) : 2);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  const std::string directory_ = ::testing::TempDir() + "/arenas";
};

TEST_F(ArenaTest, AnotherMappingSeesWrites) {
  const auto arena = Make();
  const ArenaIdentity& identity = *arena->identity();
  EXPECT_EQ(identity.bytes, kMiB);
  EXPECT_EQ(identity.id.size(), 32u);
  EXPECT_EQ(identity.nonce.size(), 16u);
  EXPECT_EQ(identity.path, absl::StrCat(directory_, "/ballast-", getuid(), "-",
                                        identity.id, ".arena"));
  struct stat file;
  ASSERT_EQ(stat(identity.path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0640u);
  EXPECT_EQ(static_cast<uint64_t>(file.st_size), kMiB);

  const int descriptor = open(identity.path.c_str(), O_RDONLY);
  const auto* seen = static_cast<const uint8_t*>(
      mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, descriptor, 0));
  close(descriptor);
  ASSERT_NE(seen, MAP_FAILED);
  ArenaHeader header;
  std::memcpy(&header, seen, sizeof(header));
  EXPECT_EQ(header.magic, kArenaMagic);
  EXPECT_EQ(header.version, kArenaVersion);
  EXPECT_EQ(header.bytes, kMiB);
  EXPECT_EQ(std::string(header.id, sizeof(header.id)), identity.id);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(header.nonce), 16),
            identity.nonce);

  ASSERT_TRUE(arena->EnsureReserved(arena->end()).ok());
  std::memset(arena->at(arena->begin()), 7, arena->end() - arena->begin());
  SetStamp(arena->stamp(8192 + 256), 99);
  EXPECT_EQ(seen[arena->begin()], 7);
  EXPECT_EQ(seen[arena->end() - 1], 7);
  EXPECT_TRUE(StampHolds(reinterpret_cast<const ArenaStamp*>(seen + 8192), 99));
  EXPECT_FALSE(
      StampHolds(reinterpret_cast<const ArenaStamp*>(seen + 8192), 98));
  munmap(const_cast<uint8_t*>(seen), kMiB);
}

TEST_F(ArenaTest, AllocatesPagesOnceWhenNeeded) {
  const auto arena = Make(256 * kMiB);
  struct stat file;
  ASSERT_EQ(stat(arena->identity()->path.c_str(), &file), 0);
  EXPECT_LE(static_cast<uint64_t>(file.st_blocks) * 512, 32 * kMiB);
  ASSERT_TRUE(arena->EnsureReserved(100 * kMiB).ok());
  ASSERT_EQ(stat(arena->identity()->path.c_str(), &file), 0);
  EXPECT_GE(static_cast<uint64_t>(file.st_blocks) * 512, 100 * kMiB);
  const auto blocks = file.st_blocks;
  ASSERT_TRUE(arena->EnsureReserved(50 * kMiB).ok());
  ASSERT_EQ(stat(arena->identity()->path.c_str(), &file), 0);
  EXPECT_EQ(file.st_blocks, blocks);
}

TEST_F(ArenaTest, RemovesItsFile) {
  Make();
  EXPECT_EQ(Files(), 0);
}

TEST_F(ArenaTest, TheNextServerRemovesFilesOfKilledOnes) {
  LeaveStale();
  EXPECT_EQ(Files(), 1);
  LeaveStale();  // its creation removed the first one
  EXPECT_EQ(Files(), 1);
  const auto living = Make();
  EXPECT_EQ(Files(), 1);
  // The arena of a living server stays.
  const auto other = Make();
  EXPECT_EQ(Files(), 2);
  EXPECT_EQ(RemoveStaleArenas(directory_), 0);
}

TEST_F(ArenaTest, KeepsOtherFiles) {
  const std::string uid = absl::StrCat("ballast-", getuid());
  for (const std::string& name :
       {std::string("ballast-x.arena"), uid + "-data", std::string("a.arena"),
        absl::StrCat("ballast-", getuid() + 1, "-0.arena")}) {
    std::ofstream(directory_ + "/" + name) << "x";
  }
  std::filesystem::create_symlink(directory_ + "/a.arena",
                                  directory_ + "/" + uid + "-1.arena");
  EXPECT_EQ(RemoveStaleArenas(directory_), 0);
  EXPECT_EQ(Files(), 5);
  EXPECT_EQ(RemoveStaleArenas(directory_ + "/none"), 0);
}

TEST_F(ArenaTest, AMappingKeepsItsPagesAfterTheServer) {
  auto arena = Make();
  const int descriptor = open(arena->identity()->path.c_str(), O_RDONLY);
  const auto* seen = static_cast<const uint8_t*>(
      mmap(nullptr, kMiB, PROT_READ, MAP_SHARED, descriptor, 0));
  close(descriptor);
  ASSERT_TRUE(arena->EnsureReserved(arena->end()).ok());
  std::memset(arena->at(arena->begin()), 7, kMiB - arena->begin());
  arena.reset();
  const auto next = Make();
  ASSERT_TRUE(next->EnsureReserved(next->end()).ok());
  std::memset(next->at(next->begin()), 8, kMiB - next->begin());
  EXPECT_EQ(seen[kMiB - 1], 7);
  munmap(const_cast<uint8_t*>(seen), kMiB);
}

TEST_F(ArenaTest, NamesTheFaultOfTheDirectory) {
  absl::Status status =
      Arena::CreateShared(directory_ + "/none", kMiB).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_ + "/none"));
  status = Arena::CreateShared(directory_, uint64_t{1} << 50).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1125899906842624"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("serve.memory"));
  EXPECT_EQ(Files(), 0);
}

TEST_F(ArenaTest, APrivateArenaHasNoFile) {
  const auto arena = Arena::CreatePrivate(kMiB + 5);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->identity(), nullptr);
  EXPECT_EQ((*arena)->end(), kMiB);
  ASSERT_TRUE((*arena)->EnsureReserved(kMiB).ok());
  *(*arena)->at(kMiB - 1) = 1;
  EXPECT_EQ(Arena::CreatePrivate(uint64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Bytes of the file system of `directory`; 0 if there is none.
uint64_t SizeOf(const std::string& directory) {
  std::error_code error;
  const std::filesystem::space_info space =
      std::filesystem::space(directory, error);
  return error ? 0 : space.capacity;
}

TEST_F(ArenaTest, TheSettingChoosesTheDirectory) {
  auto arena = MakeArena("off", "", kMiB);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ((*arena)->identity(), nullptr);
  arena = MakeArena(directory_, "", kMiB);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_THAT((*arena)->identity()->path, HasSubstr(directory_));
  const absl::Status none = MakeArena(directory_ + "/no", "", kMiB).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("serve.arena"));
  // If no file system is that large, the arena is private, which is no error.
  arena = MakeArena(
      "auto", directory_ + "/a.sock",
      std::max(SizeOf(directory_), SizeOf("/dev/shm")) + (uint64_t{1} << 34));
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->identity(), nullptr);
}

}  // namespace
}  // namespace ballast
