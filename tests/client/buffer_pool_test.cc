#include "client/buffer_pool.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grp.h>
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

constexpr uint64_t kPoolMiB = uint64_t{1} << 20;

BufferPool::Buffer Take(BufferPool* pool, uint64_t bytes) {
  absl::StatusOr<BufferPool::Buffer> buffer = pool->Take(bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

TEST(BufferPoolTest, BuffersLieInOneRegion) {
  BufferPool pool(4 * kPoolMiB);
  const auto first = Take(&pool, 1);
  const auto region = pool.GetRegion(first);
  ASSERT_NE(region, nullptr);
  EXPECT_FALSE(region->read_only());
  EXPECT_EQ(region->bytes().size(), 4 * kPoolMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->bytes().data()) % 4096, 0u);
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{4097}, kPoolMiB}) {
    const auto buffer = Take(&pool, bytes);
    EXPECT_EQ(buffer.bytes.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes.data()) % 256, 0u);
    EXPECT_GE(buffer.bytes.data(), region->bytes().begin());
    EXPECT_LE(buffer.bytes.end(), region->bytes().end());
    EXPECT_EQ(pool.GetRegion(buffer), region);
    std::memset(buffer.bytes.data(), 1, bytes);
  }
}

TEST(BufferPoolTest, PlacesAreReused) {
  BufferPool pool(kPoolMiB);
  auto first = Take(&pool, kPoolMiB);
  const uint8_t* const data = first.bytes.data();
  pool.Return(std::move(first));
  EXPECT_EQ(Take(&pool, 3 * kPoolMiB / 4).bytes.data(), data);
}

TEST(BufferPoolTest, BuffersThatDoNotFitGetTheirOwnMemory) {
  BufferPool pool(kPoolMiB);
  auto all = Take(&pool, kPoolMiB);
  for (const uint64_t bytes : {uint64_t{1}, 2 * kPoolMiB}) {
    auto alone = Take(&pool, bytes);
    EXPECT_EQ(pool.GetRegion(alone), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(alone.bytes.data()) % 256, 0u);
    std::memset(alone.bytes.data(), 1, bytes);
    pool.Return(std::move(alone));
  }
  pool.Return(std::move(all));
  EXPECT_NE(pool.GetRegion(Take(&pool, 1)), nullptr);
}

TEST(BufferPoolTest, TheRegionMayOutliveThePool) {
  auto pool = std::make_unique<BufferPool>(kPoolMiB);
  auto buffer = Take(pool.get(), 100);
  const auto region = pool->GetRegion(buffer);
  buffer.bytes[0] = 7;
  pool->Return(std::move(buffer));
  pool.reset();
  EXPECT_EQ(region->bytes()[0], 7);
}

TEST(BufferPoolTest, WithoutARegionAllBuffersGetTheirOwnMemory) {
  BufferPool pool(0);
  EXPECT_EQ(pool.GetRegion(Take(&pool, 10)), nullptr);
  EXPECT_EQ(Take(&pool, 0).bytes.size(), 0u);
}

TEST(BufferPoolTest, RefusesAbsurdSizes) {
  BufferPool pool(UINT64_MAX);
  EXPECT_EQ(pool.Take(UINT64_MAX).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(BufferPoolsTest, TheNextPoolReusesTheRegionOfTheReleasedOne) {
  BufferPools pools;
  auto pool = pools.Take(kPoolMiB);
  auto buffer = Take(pool.get(), 1);
  const uint8_t* const data = buffer.bytes.data();
  std::memset(buffer.bytes.data(), 1, 1);

  // One pool in use and one of another size: two pools.
  const auto beside = pools.Take(kPoolMiB);
  EXPECT_NE(Take(beside.get(), 1).bytes.data(), data);
  pool->Return(std::move(buffer));
  pool.reset();
  EXPECT_EQ(pools.Take(2 * kPoolMiB)->region_bytes(), 2 * kPoolMiB);

  EXPECT_EQ(Take(pools.Take(kPoolMiB).get(), 1).bytes.data(), data);
}

TEST(BufferPoolsTest, KeepsTheLatest) {
  BufferPools pools;
  std::vector<std::shared_ptr<BufferPool>> used;
  std::vector<std::weak_ptr<const MemoryRegion>> regions;
  for (size_t i = 0; i < BufferPools::kMaxIdle + 1; ++i) {
    used.push_back(pools.Take(kPoolMiB));
    auto buffer = Take(used.back().get(), 1);
    regions.push_back(used.back()->GetRegion(buffer));
    used.back()->Return(std::move(buffer));
  }
  for (auto& pool : used) pool.reset();
  EXPECT_TRUE(regions[0].expired());
  for (size_t i = 1; i < regions.size(); ++i) {
    EXPECT_FALSE(regions[i].expired()) << i;
  }
}

TEST(BufferPoolsTest, PoolsMayOutliveThem) {
  auto pools = std::make_unique<BufferPools>();
  const auto pool = pools->Take(kPoolMiB);
  pools.reset();
  std::memset(Take(pool.get(), kPoolMiB).bytes.data(), 1, kPoolMiB);
}

}  // namespace
}  // namespace ballast
