#include "server/storage/entry_file.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/corpus/file.h"

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
  std::string file;
  {
    std::ifstream in(dir_ + "/entry", std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }
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

}  // namespace
}  // namespace ballast
