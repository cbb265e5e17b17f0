#include "server/storage/entry_pool.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "server/corpus/file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

SpanKey Key(uint64_t n) { return {n << 56 | n, n * 7 + 1}; }

class EntryPoolTest : public ::testing::Test {
 protected:
  EntryPoolTest() {
    std::string name = ::testing::TempDir() + "poolXXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~EntryPoolTest() override { fs::remove_all(dir_); }

  std::shared_ptr<const EntryFile> Entry(uint64_t n, uint64_t size = 100) {
    const std::string path = dir_ + "/" + std::to_string(n);
    const std::string bytes(size, static_cast<char>('a' + n));
    std::ofstream(path) << EntryFile::Head(Key(n), bytes) << bytes;
    auto file = File::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto entry =
        EntryFile::Open(*std::move(file), Key(n), size, ReadFrom::kDisk);
    EXPECT_TRUE(entry.ok()) << entry.status();
    return *entry;
  }
  // Descriptors of this process that lead into the folder.
  size_t Descriptors() {
    size_t found = 0;
    for (const auto& link : fs::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string to = fs::read_symlink(link.path(), error).string();
      if (to.compare(0, dir_.size(), dir_) == 0) ++found;
    }
    return found;
  }

  std::string dir_;
};

TEST_F(EntryPoolTest, KeepsTheLastUsedWithinItsBound) {
  EntryPool pool(3);
  for (uint64_t n = 0; n < 3; ++n) pool.Put(Key(n), Entry(n), 0);
  EXPECT_NE(pool.Find(Key(0), 0), nullptr);
  pool.Put(Key(3), Entry(3), 0);
  pool.Put(Key(3), Entry(3), 0);
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_EQ(Descriptors(), 3u);
  EXPECT_EQ(pool.Find(Key(1), 0), nullptr);
  for (const uint64_t n : {0, 2, 3}) EXPECT_NE(pool.Find(Key(n), 0), nullptr);
  for (uint64_t n = 4; n < 20; ++n) {
    pool.Put(Key(n), Entry(n), 0);
    EXPECT_EQ(Descriptors(), 3u);
  }
}

TEST_F(EntryPoolTest, LeavesLargeOnesToTheirReaders) {
  EntryPool pool(3);
  pool.Put(Key(1), Entry(1, EntryPool::kMostBytes), 0);
  pool.Put(Key(2), Entry(2, EntryPool::kMostBytes + 1), 0);
  EXPECT_NE(pool.Find(Key(1), 0), nullptr);
  EXPECT_EQ(pool.Find(Key(2), 0), nullptr);
  EXPECT_EQ(Descriptors(), 1u);
}

TEST_F(EntryPoolTest, ClosesWhatItGivesUpOnceNobodyReadsIt) {
  EntryPool pool(3);
  for (uint64_t n = 0; n < 3; ++n) pool.Put(Key(n), Entry(n), 0);
  const auto held = pool.Find(Key(0), 0);
  pool.Drop(Key(1));
  pool.Drop(Key(1));
  EXPECT_EQ(pool.Find(Key(1), 0), nullptr);
  EXPECT_EQ(Descriptors(), 2u);
  pool.Clear();
  EXPECT_EQ(pool.size(), 0u);
  EXPECT_EQ(Descriptors(), 1u);
  EntryReader reader(held, ReadFrom::kDisk);
  std::string bytes(100, '?');
  EXPECT_TRUE(reader.ReadAt(0, 100, bytes.data()).ok());
  EXPECT_EQ(bytes, std::string(100, 'a'));
}

TEST_F(EntryPoolTest, ClosesAllOnceSomethingWasRemoved) {
  EntryPool pool(3);
  pool.Put(Key(1), Entry(1), 4);
  EXPECT_NE(pool.Find(Key(1), 4), nullptr);
  EXPECT_EQ(pool.Find(Key(1), 5), nullptr);
  EXPECT_EQ(Descriptors(), 0u);
  // Opened before something was removed: it may be what was.
  pool.Put(Key(1), Entry(1), 4);
  EXPECT_EQ(pool.size(), 0u);
  pool.Put(Key(1), Entry(1), 5);
  pool.Update(5);
  EXPECT_EQ(pool.size(), 1u);
  pool.Update(6);
  EXPECT_EQ(pool.size(), 0u);
}

}  // namespace
}  // namespace ballast
