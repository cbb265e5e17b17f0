#include "server/files/entry_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "server/files/span_checksum.h"
#include "tests/fakes/read_file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = EntryFile::kBlock;
constexpr SpanKey kKey = {0x0123456789abcdef, 0xfedcba9876543210};

std::string Pattern(uint64_t size) {
  std::string bytes(size, '\0');
  for (uint64_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(i * 131 + i / 257 + i / 65537);
  }
  return bytes;
}

class EntryFileTest : public ::testing::Test {
 protected:
  EntryFileTest() {
    std::string name = ::testing::TempDir() + "entryXXXXXX";
    dir_ = mkdtemp(name.data());
  }
  ~EntryFileTest() override { fs::remove_all(dir_); }

  void Write(const std::string& bytes, const SpanKey& key = kKey) {
    std::ofstream(dir_ + "/entry", std::ios::binary)
        << EntryFile::Head(key, bytes) << bytes;
    ASSERT_EQ(fs::file_size(dir_ + "/entry"),
              EntryFile::FileBytes(bytes.size()));
  }
  // Changes one byte of the file.
  void Damage(uint64_t at) {
    std::fstream file(dir_ + "/entry",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }
  absl::StatusOr<std::unique_ptr<EntryReader>> Open(uint64_t size,
                                                    const SpanKey& key = kKey) {
    auto file = File::Open(dir_ + "/entry");
    EXPECT_TRUE(file.ok()) << file.status();
    auto entry = EntryFile::Open(*std::move(file), key, size, ReadFrom::kDisk);
    if (!entry.ok()) return entry.status();
    return std::make_unique<EntryReader>(*std::move(entry), ReadFrom::kDisk);
  }

  std::string dir_;
};

TEST_F(EntryFileTest, ReadsAnyPart) {
  // More checksums than are read at once, and a last block that is shorter.
  const std::string bytes = Pattern(600 * kBlock + 77);
  Write(bytes);
  const auto entry = Open(bytes.size());
  ASSERT_TRUE(entry.ok()) << entry.status();
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 1},
           {0, 512},
           {512, 2 * kBlock},
           {512, kBlock},
           {kBlock, kBlock},
           {3 * kBlock, 20 * kBlock},
           {511 * kBlock - 3, 2 * kBlock + 6},
           {10, 0},
           {600 * kBlock, 77},
           {600 * kBlock + 76, 1},
           {0, bytes.size()},
           {bytes.size(), 0}}) {
    std::string out(size, '?');
    const absl::Status read = (*entry)->ReadAt(offset, size, out.data());
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_TRUE(out == bytes.substr(offset, size)) << offset << " " << size;
  }
  char byte = 0;
  EXPECT_TRUE(absl::IsInternal((*entry)->ReadAt(bytes.size(), 1, &byte)));
}

TEST_F(EntryFileTest, AnEmptyOneHasNoBlocks) {
  Write("");
  EXPECT_TRUE(Open(0).ok());
  EXPECT_EQ(EntryFile::FileBytes(0), 32u);
  EXPECT_EQ(EntryFile::FileBytes(1), 41u);
  EXPECT_EQ(EntryFile::FileBytes(kBlock + 1), 48 + kBlock + 1);
}

// Whatever part is read, a damaged byte that it needs is found, and one that it
// does not need costs nothing.
TEST_F(EntryFileTest, FindsDamageInTheBlocksThatItReads) {
  const std::string bytes = Pattern(4 * kBlock + 100);
  const uint64_t begin = EntryFile::FileBytes(bytes.size()) - bytes.size();
  for (uint64_t block = 0; block < 5; ++block) {
    // A byte of the block, and one of its checksum.
    for (const uint64_t at :
         {begin + block * kBlock + 99, 32 + 8 * block + 3}) {
      Write(bytes);
      Damage(at);
      const auto entry = Open(bytes.size());
      ASSERT_TRUE(entry.ok()) << entry.status();
      std::string out(bytes.size(), '?');
      for (uint64_t other = 0; other < 5; ++other) {
        const uint64_t size = other == 4 ? 100 : kBlock;
        // The whole block, and a part of it.
        for (const uint64_t less : {uint64_t{0}, uint64_t{50}}) {
          const absl::Status read =
              (*entry)->ReadAt(other * kBlock, size - less, out.data());
          EXPECT_EQ(absl::IsDataLoss(read), other == block) << read;
        }
      }
      EXPECT_TRUE(
          absl::IsDataLoss((*entry)->ReadAt(0, bytes.size(), out.data())));
    }
  }
}

// As in a tar: headers and text at both ends, then the image between them. Its
// first and last block are those that were read.
TEST_F(EntryFileTest, KeepsTheBlocksOfWhichItReadAPart) {
  const std::string bytes = Pattern(20 * kBlock);
  const uint64_t begin = EntryFile::FileBytes(bytes.size()) - bytes.size();
  Write(bytes);
  const auto entry = Open(bytes.size());
  ASSERT_TRUE(entry.ok()) << entry.status();
  std::string out(bytes.size(), '?');
  for (const uint64_t offset :
       {uint64_t{0}, 18 * kBlock + 512, 18 * kBlock + 1024, 19 * kBlock - 8}) {
    ASSERT_TRUE((*entry)->ReadAt(offset, 512, out.data()).ok()) << offset;
  }
  Damage(begin + 100);
  Damage(begin + 18 * kBlock + 100);
  const uint64_t size = 18 * kBlock + 512 - 512;
  const absl::Status read = (*entry)->ReadAt(512, size, out.data());
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_TRUE(out.substr(0, size) == bytes.substr(512, size));
  // It keeps a few blocks, not all.
  for (uint64_t block = 1; block < 5; ++block) {
    ASSERT_TRUE((*entry)->ReadAt(block * kBlock + 1, 1, out.data()).ok());
  }
  EXPECT_TRUE(absl::IsDataLoss((*entry)->ReadAt(512, 1, out.data())));
}

// Another reader of the same open file compares what it reads, too.
TEST_F(EntryFileTest, ReadersShareAFileAndCompareForThemselves) {
  const std::string bytes = Pattern(3 * kBlock);
  const uint64_t begin = EntryFile::FileBytes(bytes.size()) - bytes.size();
  Write(bytes);
  auto file = File::Open(dir_ + "/entry");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto entry =
      EntryFile::Open(*std::move(file), kKey, bytes.size(), ReadFrom::kDisk);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EntryReader one(*entry, ReadFrom::kDisk);
  std::string out(bytes.size(), '?');
  ASSERT_TRUE(one.ReadAt(0, bytes.size(), out.data()).ok());
  EXPECT_TRUE(out == bytes);
  Damage(begin + kBlock + 1);
  for (int reader = 0; reader < 2; ++reader) {
    EntryReader other(*entry, ReadFrom::kDisk);
    EXPECT_TRUE(absl::IsDataLoss(other.ReadAt(0, bytes.size(), out.data())));
  }
}

TEST_F(EntryFileTest, ABlockOfAnotherPlaceDoesNotFit) {
  // Equal blocks: only their places differ.
  const std::string bytes(2 * kBlock, 'x');
  Write(bytes);
  std::string file = ReadFile(dir_ + "/entry");
  std::swap_ranges(file.begin() + 32, file.begin() + 40, file.begin() + 40);
  std::ofstream(dir_ + "/entry", std::ios::binary) << file;
  std::string out(kBlock, '?');
  const auto swapped = Open(bytes.size());
  ASSERT_TRUE(swapped.ok());
  EXPECT_TRUE(absl::IsDataLoss((*swapped)->ReadAt(0, kBlock, out.data())));
  EXPECT_TRUE(absl::IsDataLoss((*swapped)->ReadAt(kBlock, kBlock, out.data())));
  // The blocks of another entry behind this one's header.
  SpanKey other = kKey;
  ++other.low;
  const std::string head = EntryFile::Head(kKey, bytes);
  const std::string of_other = EntryFile::Head(other, bytes);
  std::ofstream(dir_ + "/entry", std::ios::binary)
      << head.substr(0, 32) << of_other.substr(32) << bytes;
  const auto mixed = Open(bytes.size());
  ASSERT_TRUE(mixed.ok());
  EXPECT_TRUE(absl::IsDataLoss((*mixed)->ReadAt(0, kBlock, out.data())));
}

TEST_F(EntryFileTest, RefusesAnotherHeaderAndTornFiles) {
  const std::string bytes = Pattern(kBlock + 1);
  Write(bytes);
  SpanKey other = kKey;
  ++other.high;
  EXPECT_TRUE(absl::IsDataLoss(Open(bytes.size(), other).status()));
  EXPECT_TRUE(absl::IsDataLoss(Open(bytes.size() - 1).status()));
  fs::resize_file(dir_ + "/entry", EntryFile::FileBytes(bytes.size()) - 1);
  const auto torn = Open(bytes.size());
  ASSERT_TRUE(torn.ok());
  std::string out(bytes.size(), '?');
  EXPECT_TRUE((*torn)->ReadAt(0, kBlock, out.data()).ok());
  EXPECT_TRUE(absl::IsDataLoss((*torn)->ReadAt(kBlock, 1, out.data())));
  fs::resize_file(dir_ + "/entry", 20);
  EXPECT_TRUE(absl::IsDataLoss(Open(bytes.size()).status()));
}

constexpr SpanKey Key(uint64_t number) { return {1, number}; }

SpanMemory::Ptr Make(uint64_t size) {
  return std::make_shared<Span>(ByteRange{0, size});
}

TEST(SpanMemoryTest, KeepsWhatWasReadElsewhereWithinItsBound) {
  SpanMemory memory(100);
  const auto first = Make(60);
  memory.Put(Key(1), first);
  EXPECT_EQ(memory.Find(Key(1)), first);
  // The one that is here stays.
  memory.Put(Key(1), Make(60));
  EXPECT_EQ(memory.Find(Key(1)), first);
  EXPECT_EQ(memory.bytes(), 60u);
  memory.Put(Key(2), Make(41));
  EXPECT_EQ(memory.Find(Key(1)), nullptr);
  EXPECT_EQ(memory.bytes(), 41u);
  // One span, even if it alone is larger.
  memory.Put(Key(3), Make(500));
  EXPECT_NE(memory.Find(Key(3)), nullptr);
  EXPECT_EQ(memory.bytes(), 500u);
}

TEST(SpanMemoryTest, LeavesASpanToWhoLoadsIt) {
  SpanMemory memory(100);
  const auto loaded = Make(10);
  const auto got = memory.Get(Key(1), [&] {
    memory.Put(Key(1), Make(10));
    EXPECT_EQ(memory.Find(Key(1)), nullptr);
    return loaded;
  });
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, loaded);
  EXPECT_EQ(memory.Find(Key(1)), loaded);
  EXPECT_EQ(memory.bytes(), 10u);
  const auto failed =
      memory.Get(Key(2), [&]() -> absl::StatusOr<SpanMemory::Ptr> {
        return absl::UnavailableError("no store");
      });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  memory.Put(Key(2), loaded);
  EXPECT_EQ(memory.Find(Key(2)), loaded);
}

// Of all lengths that the algorithm treats apart, and at all alignments.
TEST(SpanChecksumTest, IsThatOfTheLibrary) {
  std::mt19937_64 random(1);
  std::string bytes(300000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t size = 0; size <= bytes.size() - 64;
       size += size < 3000 ? 1 : 9973) {
    const absl::string_view part(bytes.data() + size % 64, size);
    ASSERT_EQ(SpanChecksum(part), XXH3_64bits(part.data(), part.size()))
        << size << " bytes";
    if (!HasSpanChecksumAvx2()) continue;
    ASSERT_EQ(SpanChecksumAvx2(part.data(), part.size()), SpanChecksum(part));
  }
}

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

SpanKey PoolKey(uint64_t n) { return {n << 56 | n, n * 7 + 1}; }

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
    std::ofstream(path) << EntryFile::Head(PoolKey(n), bytes) << bytes;
    auto file = File::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    const auto entry =
        EntryFile::Open(*std::move(file), PoolKey(n), size, ReadFrom::kDisk);
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
  for (uint64_t n = 0; n < 3; ++n) pool.Put(PoolKey(n), Entry(n), 0);
  EXPECT_NE(pool.Find(PoolKey(0), 0), nullptr);
  pool.Put(PoolKey(3), Entry(3), 0);
  pool.Put(PoolKey(3), Entry(3), 0);
  EXPECT_EQ(pool.size(), 3u);
  EXPECT_EQ(Descriptors(), 3u);
  EXPECT_EQ(pool.Find(PoolKey(1), 0), nullptr);
  for (const uint64_t n : {0, 2, 3})
    EXPECT_NE(pool.Find(PoolKey(n), 0), nullptr);
  for (uint64_t n = 4; n < 20; ++n) {
    pool.Put(PoolKey(n), Entry(n), 0);
    EXPECT_EQ(Descriptors(), 3u);
  }
}

TEST_F(EntryPoolTest, LeavesLargeOnesToTheirReaders) {
  EntryPool pool(3);
  pool.Put(PoolKey(1), Entry(1, EntryPool::kMaxBytes), 0);
  pool.Put(PoolKey(2), Entry(2, EntryPool::kMaxBytes + 1), 0);
  EXPECT_NE(pool.Find(PoolKey(1), 0), nullptr);
  EXPECT_EQ(pool.Find(PoolKey(2), 0), nullptr);
  EXPECT_EQ(Descriptors(), 1u);
}

TEST_F(EntryPoolTest, ClosesWhatItGivesUpOnceNobodyReadsIt) {
  EntryPool pool(3);
  for (uint64_t n = 0; n < 3; ++n) pool.Put(PoolKey(n), Entry(n), 0);
  const auto held = pool.Find(PoolKey(0), 0);
  pool.Drop(PoolKey(1));
  pool.Drop(PoolKey(1));
  EXPECT_EQ(pool.Find(PoolKey(1), 0), nullptr);
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
  pool.Put(PoolKey(1), Entry(1), 4);
  EXPECT_NE(pool.Find(PoolKey(1), 4), nullptr);
  EXPECT_EQ(pool.Find(PoolKey(1), 5), nullptr);
  EXPECT_EQ(Descriptors(), 0u);
  // Opened before something was removed: it may be what was.
  pool.Put(PoolKey(1), Entry(1), 4);
  EXPECT_EQ(pool.size(), 0u);
  pool.Put(PoolKey(1), Entry(1), 5);
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
