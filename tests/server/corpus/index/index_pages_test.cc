#include "server/corpus/index/index_pages.h"

#include <xxhash.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  return bytes;
}

std::vector<uint64_t> ChecksumsOf(const std::string& bytes) {
  std::vector<uint64_t> checksums;
  for (size_t at = 0; at < bytes.size(); at += 4096) {
    const std::string page = bytes.substr(at, 4096);
    checksums.push_back(XXH3_64bits(page.data(), page.size()));
  }
  return checksums;
}

TEST(PageChecksumsTest, CutsPiecesIntoPages) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, 8192, 20'000}) {
    const std::string bytes = Bytes(size);
    const absl::string_view whole = bytes;
    EXPECT_EQ(PageChecksums({whole}), ChecksumsOf(bytes)) << size;
    std::vector<absl::string_view> pieces;
    for (size_t at = 0, n = 0; at < size; at += n) {
      n = 1 + at * 7 % 5000;
      pieces.push_back(whole.substr(at, n));
      pieces.push_back("");
    }
    EXPECT_EQ(PageChecksums(pieces), ChecksumsOf(bytes)) << size;
  }
}

TEST(CheckedPagesTest, ChecksEachPageWhenItIsTouched) {
  std::string bytes = Bytes(3 * 4096 + 10);
  const std::vector<uint64_t> checksums = ChecksumsOf(bytes);
  bytes[4096 + 5] ^= 1;
  const CheckedPages pages(bytes, checksums);
  EXPECT_TRUE(pages.IsChecked(0, 0));
  EXPECT_FALSE(pages.IsChecked(0, 1));
  EXPECT_EQ(pages.Check(0, 0), std::nullopt);
  EXPECT_EQ(pages.Check(10, 4086), std::nullopt);
  EXPECT_TRUE(pages.IsChecked(0, 4096));
  EXPECT_FALSE(pages.IsChecked(4095, 2));
  EXPECT_EQ(pages.num_checked(), 1);
  // The pages before it are checked nevertheless, and it stays damaged.
  EXPECT_EQ(pages.Check(0, bytes.size()), 1);
  EXPECT_EQ(pages.Check(4095, 2), 1);
  EXPECT_FALSE(pages.IsChecked(4096, 1));
  EXPECT_EQ(pages.Check(2 * 4096, 4096 + 10), std::nullopt);
  EXPECT_EQ(pages.num_checked(), 3);
}

}  // namespace
}  // namespace ballast
