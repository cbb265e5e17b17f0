#include "server/storage/entry_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/corpus/file.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NextUsesTest, FindsTheFirstUseWithinTheRange) {
  // Position p uses owners p % 5 and 100 + p.
  const auto add = [](uint64_t at, std::vector<uint64_t>* owners) {
    owners->push_back(at % 5);
    owners->push_back(100 + at);
  };
  EXPECT_THAT(NextUses({0, 3, 107, 7, 100, 3}, 4, 50, add),
              ElementsAre(5, 8, 7, kNeverUsed, kNeverUsed, 8));
  EXPECT_THAT(NextUses({0}, 4, 5, add), ElementsAre(kNeverUsed));
}

TEST(NextUsesTest, StopsOnceAllAreFound) {
  uint64_t asked = 0;
  NextUses({1, 2}, 0, uint64_t{1} << 60,
           [&](uint64_t at, std::vector<uint64_t>* owners) {
             ++asked;
             owners->push_back(at);
           });
  EXPECT_EQ(asked, 3u);
}

TEST(ChooseVictimsTest, WhatIsNeededLastGoesFirst) {
  const std::vector<CacheEntry> entries = {
      {10, 50}, {10, kNeverUsed}, {10, 70}, {30, 70}, {10, 20}};
  EXPECT_THAT(ChooseVictims(entries, 10, 0, 30), ElementsAre(1));
  EXPECT_THAT(ChooseVictims(entries, 41, 0, 30), ElementsAre(1, 3, 2));
  // Room to spare comes from the same order.
  EXPECT_THAT(ChooseVictims(entries, 10, 1, 30), ElementsAre(1, 3));
}

TEST(ChooseVictimsTest, NothingThatIsNeededEarlierIsGivenUp) {
  const std::vector<CacheEntry> entries = {{10, 5}, {10, 40}, {10, 30}};
  EXPECT_THAT(ChooseVictims(entries, 10, 100, 30), ElementsAre(1));
  EXPECT_THAT(ChooseVictims(entries, 11, 0, 30), IsEmpty());
  EXPECT_THAT(ChooseVictims({}, 1, 0, 0), IsEmpty());
}

// Belady's rule has the fewest misses; any other choice at the first eviction
// has as many or more. Brute force over small caches is the oracle.
int BestMisses(const std::vector<uint64_t>& uses, size_t at,
               std::set<uint64_t> held, size_t capacity) {
  while (at < uses.size() && held.count(uses[at]) != 0) ++at;
  if (at == uses.size()) return 0;
  if (held.size() < capacity) {
    held.insert(uses[at]);
    return 1 + BestMisses(uses, at + 1, held, capacity);
  }
  int best = 1 << 20;
  for (const uint64_t out : std::set<uint64_t>(held)) {
    std::set<uint64_t> next = held;
    next.erase(out);
    next.insert(uses[at]);
    best = std::min(best, 1 + BestMisses(uses, at + 1, next, capacity));
  }
  return best;
}

TEST(ChooseVictimsTest, HasAsFewMissesAsPossible) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    std::vector<uint64_t> uses(11);
    for (uint64_t& use : uses) use = random() % 5;
    int misses = 0;
    std::vector<uint64_t> held;
    for (size_t at = 0; at < uses.size(); ++at) {
      if (std::count(held.begin(), held.end(), uses[at]) != 0) continue;
      ++misses;
      if (held.size() == 3) {
        const std::vector<uint64_t> next =
            NextUses(held, at + 1, uses.size(),
                     [&](uint64_t p, std::vector<uint64_t>* o) {
                       o->push_back(uses[p]);
                     });
        std::vector<CacheEntry> entries;
        for (const uint64_t use : next) entries.push_back({1, use});
        const std::vector<size_t> victims = ChooseVictims(entries, 1, 0, at);
        ASSERT_EQ(victims.size(), 1u);
        held.erase(held.begin() + victims[0]);
      }
      held.push_back(uses[at]);
    }
    EXPECT_EQ(misses, BestMisses(uses, 0, {}, 3)) << "round " << round;
  }
}

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
  pool.Put(Key(1), Entry(1, EntryPool::kMaxBytes), 0);
  pool.Put(Key(2), Entry(2, EntryPool::kMaxBytes + 1), 0);
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

TEST(KnownEntriesTest, KnowsWhatWasAddedUntilItIsDropped) {
  KnownEntries known(10);
  EXPECT_FALSE(known.Has(1, 0));
  known.Add(1, 0);
  known.Add(2, 0);
  EXPECT_TRUE(known.Has(1, 0));
  known.Drop(1);
  EXPECT_FALSE(known.Has(1, 0));
  EXPECT_TRUE(known.Has(2, 0));
}

TEST(KnownEntriesTest, ForgetsAllOnceSomethingWasRemoved) {
  KnownEntries known(10);
  known.Add(1, 7);
  EXPECT_TRUE(known.Has(1, 7));
  EXPECT_FALSE(known.Has(1, 8));
  // Seen before something was removed: it may be what was.
  known.Add(1, 7);
  EXPECT_FALSE(known.Has(1, 8));
  known.Add(1, 8);
  EXPECT_TRUE(known.Has(1, 8));
}

TEST(KnownEntriesTest, StaysWithinItsBound) {
  KnownEntries known(10);
  for (uint64_t entry = 0; entry < 95; ++entry) {
    known.Add(entry, 0);
    EXPECT_TRUE(known.Has(entry, 0));
    uint64_t count = 0;
    for (uint64_t other = 0; other < 95; ++other) count += known.Has(other, 0);
    EXPECT_LE(count, 10u);
  }
}

}  // namespace

}  // namespace ballast
