#include "server/corpus/parquet/partial_bytes.h"

#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

TEST(PartialBytesTest, GivesWhatWasReadAndZerosForTheRest) {
  std::string bytes(5000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = 1 + i % 251;
  const std::string path = TestFolder() + "/bytes";
  WriteFile(path, bytes);
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const ByteRange range = {random() % 1000, 3000 + random() % 1000};
    PartialBytes partial(&*file, range);
    std::string wanted(bytes.size(), '\0');
    uint64_t at = range.offset;
    while (true) {
      const uint64_t size = random() % 300;
      if (!range.Covers({at, size})) break;
      std::string read(size, '\0');
      ASSERT_TRUE(partial.Read(at, size, read.data()).ok());
      EXPECT_EQ(read, bytes.substr(at, size));
      wanted.replace(at, size, read);
      // Overlaps what was read last, follows it or leaves a gap.
      at += random() % 2 == 0 ? random() % (size + 1) : size + random() % 300;
    }
    uint64_t kept = 0;
    for (const char c : wanted) kept += c != 0;
    EXPECT_EQ(partial.bytes(), kept);
    for (int i = 0; i < 50; ++i) {
      const uint64_t begin = random() % range.size;
      const uint64_t size = random() % (range.size - begin + 1);
      std::string copy(size, 'x');
      partial.CopyTo(range.offset + begin, size, copy.data());
      EXPECT_EQ(copy, wanted.substr(range.offset + begin, size));
    }
  }
}

TEST(PartialBytesTest, RefusesWhatItCannotKeep) {
  const std::string path = TestFolder() + "/bytes";
  WriteFile(path, std::string(100, 'a'));
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  PartialBytes partial(&*file, {10, 50});
  char out[100];
  EXPECT_TRUE(absl::IsDataLoss(partial.Read(9, 1, out)));
  EXPECT_TRUE(absl::IsDataLoss(partial.Read(50, 11, out)));
  EXPECT_TRUE(absl::IsDataLoss(partial.Keep({50, ~uint64_t{0}})));
  EXPECT_TRUE(partial.Read(40, 5, out).ok());
  EXPECT_TRUE(absl::IsInternal(partial.Read(20, 5, out)));
  EXPECT_EQ(partial.bytes(), 5u);
}

}  // namespace
}  // namespace ballast
