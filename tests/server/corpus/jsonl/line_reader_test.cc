#include "server/corpus/jsonl/element_reader.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;

struct Kept {
  uint64_t number, offset, length;
  std::string text;
  friend bool operator==(const Kept& a, const Kept& b) {
    return a.number == b.number && a.offset == b.offset &&
           a.length == b.length && a.text == b.text;
  }
};

std::vector<Kept> ReadLines(absl::string_view bytes, uint64_t max_length) {
  const std::string path = TestFolder() + "/lines";
  WriteFile(path, bytes);
  auto file = File::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  LineReader reader(&*file, max_length);
  std::vector<Kept> lines;
  while (true) {
    const auto line = reader.Next();
    EXPECT_TRUE(line.ok()) << line.status();
    if (!line.ok() || !*line) return lines;
    lines.push_back({(*line)->number, (*line)->offset, (*line)->length,
                     std::string((*line)->text)});
  }
}

TEST(LineReaderTest, ReadsLines) {
  EXPECT_THAT(ReadLines("", 10), ElementsAre());
  EXPECT_THAT(ReadLines("\n", 10), ElementsAre(Kept{1, 0, 0, ""}));
  EXPECT_THAT(
      ReadLines("a\r\n\nbc", 10),
      ElementsAre(Kept{1, 0, 1, "a"}, Kept{2, 3, 0, ""}, Kept{3, 4, 2, "bc"}));
  EXPECT_THAT(ReadLines("a\rb\n", 10), ElementsAre(Kept{1, 0, 3, "a\rb"}));
}

TEST(LineReaderTest, PassesOverAByteOrderMark) {
  EXPECT_THAT(ReadLines("\xEF\xBB\xBF{}\n\xEF\xBB\xBF\n", 10),
              ElementsAre(Kept{1, 3, 2, "{}"}, Kept{2, 6, 3, "\xEF\xBB\xBF"}));
  EXPECT_THAT(ReadLines("\xEF\xBB\xBF", 10), ElementsAre());
  EXPECT_THAT(ReadLines("\xEF\xBB", 10),
              ElementsAre(Kept{1, 0, 2, "\xEF\xBB"}));
}

TEST(LineReaderTest, SkipsTheTextOfLongLines) {
  EXPECT_THAT(ReadLines("1234\r\n12345\n12\n", 4),
              ElementsAre(Kept{1, 0, 4, "1234"}, Kept{2, 6, 5, ""},
                          Kept{3, 12, 2, "12"}));
}

TEST(LineReaderTest, ReadsLinesAcrossItsChunks) {
  constexpr size_t kMiB = 1 << 20;
  const std::string first(kMiB - 1, 'a');
  const std::string second(2 * kMiB + 5, 'b');
  // The '\r' ends the first chunk.
  EXPECT_THAT(ReadLines(first + "\r\n" + second + "\nc", 4 * kMiB),
              ElementsAre(Kept{1, 0, kMiB - 1, first},
                          Kept{2, kMiB + 1, 2 * kMiB + 5, second},
                          Kept{3, 3 * kMiB + 7, 1, "c"}));
}

}  // namespace
}  // namespace ballast
