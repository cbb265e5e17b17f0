#include "server/files/disk_cache.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/small_file.h"
#include "server/files/file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

// Before the bytes of an entry of one block: the header and its checksum.
constexpr uint64_t kHeader = 40;

SpanKey MakeKey(uint64_t n) { return {n << 56 | n, n * 7 + 1}; }

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    std::string name = ::testing::TempDir() + "cacheXXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~DiskCacheTest() override { fs::remove_all(dir_); }

  std::shared_ptr<DiskCache> Open(uint64_t size) {
    auto cache = DiskCache::Open(dir_, size, &counters_);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *cache;
  }

  // The bytes of an entry; nullopt if it is not there, or damaged. `from` as
  // DiskCache::Find.
  std::optional<std::string> Read(const DiskCache& cache, const SpanKey& key,
                                  uint64_t owner, uint64_t size,
                                  ReadFrom from = ReadFrom::kDisk) {
    const auto entry = cache.Find(key, owner, size, from);
    if (entry == nullptr) return std::nullopt;
    std::string bytes(size, '\0');
    const absl::Status read = entry->ReadAt(0, size, bytes.data());
    if (read.ok()) return bytes;
    EXPECT_TRUE(absl::IsDataLoss(read)) << read;
    if (from == ReadFrom::kDisk) cache.RemoveDamaged(key, owner, size);
    return std::nullopt;
  }

  // The files of entries, and their bytes.
  std::vector<fs::path> Entries(uint64_t* bytes = nullptr) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
      if (!entry.is_regular_file() || entry.path().parent_path() == dir_) {
        continue;
      }
      files.push_back(entry.path());
      if (bytes != nullptr) *bytes += entry.file_size();
    }
    return files;
  }

  std::string dir_;
  StorageCounters counters_;
};

TEST_F(DiskCacheTest, FindsInMemoryWhatTheSystemHasThere) {
  const auto cache = Open(1 << 20);
  const std::string bytes = "some bytes of an object";
  const uint64_t size = bytes.size();
  EXPECT_EQ(cache->Find(MakeKey(1), 5, size, ReadFrom::kMemory), nullptr);
  EXPECT_TRUE(cache->Store(MakeKey(1), 5, bytes));
  const OwnedFd folder(open(dir_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!OpensAlone(folder.get())) {
    GTEST_SKIP() << "the file system of " << dir_ << " is not a local one";
  }
  // The system may refuse to answer at once, such as while a mount changes.
  std::optional<std::string> found;
  for (int i = 0; i < 1000 && !found.has_value(); ++i) {
    found = Read(*cache, MakeKey(1), 5, size, ReadFrom::kMemory);
  }
  EXPECT_EQ(found, bytes);
  EXPECT_EQ(cache->Find(MakeKey(2), 5, size, ReadFrom::kMemory), nullptr);
  // Who reads from the disk removes it.
  std::fstream file(Entries()[0], std::ios::in | std::ios::out);
  file.seekp(kHeader + 3);
  file.put('X');
  file.close();
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, size, ReadFrom::kMemory), std::nullopt);
  EXPECT_EQ(counters_.cache_damaged.value(), 0u);
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, size), std::nullopt);
  EXPECT_EQ(counters_.cache_damaged.value(), 1u);
}

TEST_F(DiskCacheTest, GivesBackWhatItWasGiven) {
  const auto cache = Open(1 << 20);
  const std::string bytes = "some bytes of an object";
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, bytes.size()), std::nullopt);
  EXPECT_TRUE(cache->Store(MakeKey(1), 5, bytes));
  EXPECT_TRUE(cache->Store(MakeKey(1), 5, bytes));  // once
  EXPECT_TRUE(cache->Has(MakeKey(1), 5, bytes.size()));
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, bytes.size()), bytes);
  EXPECT_EQ(cache->bytes(), kHeader + bytes.size());
  EXPECT_EQ(Read(*cache, MakeKey(2), 5, bytes.size()), std::nullopt);
  // Another process that opens it later finds it, too.
  const auto again = Open(1 << 20);
  EXPECT_EQ(Read(*again, MakeKey(1), 5, bytes.size()), bytes);
  EXPECT_EQ(again->bytes(), kHeader + bytes.size());
}

TEST_F(DiskCacheTest, NeverServesADamagedEntry) {
  const auto cache = Open(1 << 20);
  const std::string bytes(1000, 'x');
  for (const uint64_t at :
       {uint64_t{0}, uint64_t{9}, uint64_t{33}, kHeader, kHeader + 999}) {
    ASSERT_TRUE(cache->Store(MakeKey(1), 5, bytes));
    const std::vector<fs::path> files = Entries();
    ASSERT_EQ(files.size(), 1u);
    std::fstream file(files[0], std::ios::in | std::ios::out);
    file.seekp(at);
    file.put('!');
    file.close();
    EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), std::nullopt) << at;
    EXPECT_EQ(cache->bytes(), 0u) << at;
  }
  EXPECT_EQ(counters_.cache_damaged.value(), 5u);
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, bytes));
  fs::resize_file(Entries()[0], 500);  // torn by a crash of the machine
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), std::nullopt);
  EXPECT_TRUE(Entries().empty());
}

// Two readers that find the same damage count it once, and take the bytes of
// the entry away once.
TEST_F(DiskCacheTest, CountsADamagedEntryOnce) {
  const auto cache = Open(1 << 20);
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, std::string(1000, 'x')));
  ASSERT_TRUE(cache->Store(MakeKey(2), 5, std::string(500, 'y')));
  cache->RemoveDamaged(MakeKey(1), 5, 1000);
  cache->RemoveDamaged(MakeKey(1), 5, 1000);
  EXPECT_EQ(counters_.cache_damaged.value(), 1u);
  EXPECT_EQ(cache->bytes(), kHeader + 500);
}

// What an earlier version of Ballast left: a name without a format.
TEST_F(DiskCacheTest, DropsEntriesOfAnotherFormat) {
  const std::string old = "/01/01000000000000010000000000000008-" +
                          std::string("0000000000000005-1000");
  {
    const auto cache = Open(1 << 20);
    ASSERT_TRUE(cache->Store(MakeKey(1), 5, std::string(1000, 'x')));
    std::ofstream(dir_ + old) << std::string(1040, 'o');
    // Beside a process that may still use it, it is not read, but makes room.
    const auto beside = Open(1 << 20);
    EXPECT_TRUE(fs::exists(dir_ + old));
    EXPECT_EQ(Read(*beside, MakeKey(1), 5, 1000), std::string(1000, 'x'));
  }
  const auto cache = Open(1 << 20);
  EXPECT_FALSE(fs::exists(dir_ + old));
  EXPECT_EQ(cache->bytes(), kHeader + 1000);
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), std::string(1000, 'x'));
  EXPECT_EQ(counters_.cache_damaged.value(), 0u);
}

// The second of two modules opens nothing: there is no file by then.
TEST_F(DiskCacheTest, KeepsEntriesOpenWithinABound) {
  const auto cache = Open(1 << 20);
  constexpr uint64_t kEntries = DiskCache::kMaxOpen + 10;
  for (uint64_t i = 0; i < kEntries; ++i) {
    const std::string bytes = std::to_string(1000 + i);
    ASSERT_TRUE(cache->Store(MakeKey(i), i, bytes));
    EXPECT_EQ(Read(*cache, MakeKey(i), i, 4), bytes);
    EXPECT_LE(cache->open_entries(), DiskCache::kMaxOpen);
  }
  for (const fs::path& file : Entries()) fs::remove(file);
  EXPECT_EQ(Read(*cache, MakeKey(kEntries - 1), kEntries - 1, 4),
            std::to_string(1000 + kEntries - 1));
  EXPECT_EQ(Read(*cache, MakeKey(0), 0, 4), std::nullopt);
}

TEST_F(DiskCacheTest, ADamagedEntryDoesNotStayOpen) {
  const auto cache = Open(1 << 20);
  const std::string bytes(1000, 'x');
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, bytes));
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), bytes);
  EXPECT_EQ(cache->open_entries(), 1u);
  std::fstream file(Entries()[0], std::ios::in | std::ios::out);
  file.seekp(kHeader + 3);
  file.put('!');
  file.close();
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), std::nullopt);
  EXPECT_EQ(cache->open_entries(), 0u);
  EXPECT_FALSE(cache->Has(MakeKey(1), 5, 1000));
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, bytes));
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 1000), bytes);
  EXPECT_EQ(counters_.cache_damaged.value(), 1u);
}

// Who reads an entry that another process evicts still gets its bytes; nobody
// else finds it, and its place on the disk becomes free.
TEST_F(DiskCacheTest, NoticesWhatAnotherProcessEvicts) {
  const auto cache = Open(2 * (kHeader + 1000));
  const auto other = Open(2 * (kHeader + 1000));
  const std::string bytes(1000, 'x');
  for (uint64_t i = 1; i <= 2; ++i) {
    ASSERT_TRUE(cache->Store(MakeKey(i), i, bytes));
    EXPECT_EQ(Read(*cache, MakeKey(i), i, 1000), bytes);
    EXPECT_TRUE(cache->Has(MakeKey(i), i, 1000));
  }
  EXPECT_EQ(cache->open_entries(), 2u);
  const auto held = cache->Find(MakeKey(1), 1, 1000, ReadFrom::kDisk);
  ASSERT_NE(held, nullptr);
  ASSERT_TRUE(other->MakeRoom(1000, 10, [](absl::Span<const uint64_t> owners) {
    std::vector<uint64_t> uses;
    for (const uint64_t owner : owners) uses.push_back(owner == 1 ? 20 : 5);
    return uses;
  }));
  EXPECT_FALSE(cache->Has(MakeKey(1), 1, 1000));
  EXPECT_TRUE(cache->Has(MakeKey(2), 2, 1000));
  EXPECT_EQ(cache->open_entries(), 0u);
  EXPECT_EQ(cache->Find(MakeKey(1), 1, 1000, ReadFrom::kDisk), nullptr);
  EXPECT_EQ(Read(*cache, MakeKey(2), 2, 1000), bytes);
  std::string out(1000, '?');
  ASSERT_TRUE(held->ReadAt(0, 1000, out.data()).ok());
  EXPECT_EQ(out, bytes);
}

// Nobody counts what is removed by hand: it seems to be there until it is read.
TEST_F(DiskCacheTest, FindsOutWhatWasRemovedByHand) {
  const auto cache = Open(1 << 20);
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, "bytes"));
  EXPECT_TRUE(cache->Has(MakeKey(1), 5, 5));
  EXPECT_FALSE(cache->Has(MakeKey(1), 6, 5));
  fs::remove(Entries()[0]);
  EXPECT_TRUE(cache->Has(MakeKey(1), 5, 5));
  EXPECT_EQ(Read(*cache, MakeKey(1), 5, 5), std::nullopt);
  EXPECT_FALSE(cache->Has(MakeKey(1), 5, 5));
  ASSERT_TRUE(cache->Store(MakeKey(1), 5, "bytes"));
  EXPECT_TRUE(cache->Has(MakeKey(1), 5, 5));
}

TEST_F(DiskCacheTest, StaysWithinItsBound) {
  const auto cache = Open(10 * (kHeader + 100));
  const std::string bytes(100, 'x');
  for (uint64_t i = 0; i < 10; ++i)
    EXPECT_TRUE(cache->Store(MakeKey(i), i, bytes));
  EXPECT_FALSE(cache->HasRoom(1));
  EXPECT_FALSE(cache->Store(MakeKey(10), 10, bytes));
  uint64_t on_disk = 0;
  EXPECT_EQ(Entries(&on_disk).size(), 10u);
  EXPECT_EQ(on_disk, cache->bytes());
}

TEST_F(DiskCacheTest, MakesRoomByTheNextUse) {
  const auto cache = Open(10 * (kHeader + 100));
  const std::string bytes(100, 'x');
  for (uint64_t i = 0; i < 10; ++i)
    EXPECT_TRUE(cache->Store(MakeKey(i), i, bytes));
  // Owner i is used at position 100 - i: owner 0 last.
  const auto uses = [](absl::Span<const uint64_t> owners) {
    std::vector<uint64_t> positions;
    for (const uint64_t owner : owners) positions.push_back(100 - owner);
    return positions;
  };
  EXPECT_TRUE(cache->MakeRoom(100, 50, uses));
  // Two entries: a thirty-second of the size beyond what is wanted.
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(cache->Has(MakeKey(i), i, 100), i >= 2) << i;
  }
  EXPECT_EQ(counters_.cache_evicted.value(), 2u);
  EXPECT_TRUE(cache->Store(MakeKey(10), 10, bytes));
  EXPECT_TRUE(cache->Store(MakeKey(11), 11, bytes));
  EXPECT_FALSE(cache->HasRoom(100));
  // Everything is needed earlier.
  EXPECT_FALSE(cache->MakeRoom(100, 101, uses));
  EXPECT_FALSE(cache->MakeRoom(1 << 20, 0, uses));
}

// Processes that store the same and other entries at the same time, of which
// some are killed.
TEST_F(DiskCacheTest, IsSharedAndSurvivesKilledProcesses) {
  constexpr uint64_t kBound = 200 * (kHeader + 5000);
  const auto keeps_count = Open(kBound);
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      StorageCounters counters;
      auto cache = DiskCache::Open(dir_, kBound, &counters);
      if (!cache.ok()) _exit(1);
      for (uint64_t i = 0; i < 300; ++i) {
        (*cache)->Store(MakeKey(i % 150), i % 150,
                        std::string(5000, static_cast<char>('a' + i % 26)));
        if (c == 3 && i == 120) _exit(9);  // as if killed: nothing is closed
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 1);
  }
  uint64_t on_disk = 0;
  const size_t files = Entries(&on_disk).size();
  EXPECT_EQ(files, 150u);
  EXPECT_LE(keeps_count->bytes(), kBound);
  EXPECT_GE(keeps_count->bytes(), on_disk);
  for (uint64_t i = 0; i < 150; ++i) {
    const auto bytes = Read(*keeps_count, MakeKey(i), i, 5000);
    EXPECT_TRUE(bytes == std::string(5000, static_cast<char>('a' + i % 26)) ||
                bytes ==
                    std::string(5000, static_cast<char>('a' + (i + 150) % 26)))
        << i;
  }
}

TEST_F(DiskCacheTest, WhoOpensItAloneCountsAnewAndRemovesUnfinishedFiles) {
  {
    const auto cache = Open(1 << 20);
    ASSERT_TRUE(cache->Store(MakeKey(1), 5, std::string(1000, 'x')));
    std::ofstream(dir_ + "/01/new-77-1") << "half a file";
    fs::remove(Entries()[0].filename() == "new-77-1" ? Entries()[1]
                                                     : Entries()[0]);
    EXPECT_GT(cache->bytes(), 0u);
  }
  EXPECT_EQ(Open(1 << 20)->bytes(), 0u);
  EXPECT_TRUE(Entries().empty());
}

TEST_F(DiskCacheTest, RefusesAFolderOfSomethingElse) {
  std::ofstream(dir_ + "/usage") << "a report";
  const auto cache = DiskCache::Open(dir_, 1 << 20, &counters_);
  EXPECT_TRUE(absl::IsFailedPrecondition(cache.status())) << cache.status();
}

}  // namespace
}  // namespace ballast
