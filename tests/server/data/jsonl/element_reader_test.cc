#include "server/data/jsonl/element_reader.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ElementReaderTest : public ::testing::Test {
 protected:
  // The elements of `json`, each as "NUMBER@OFFSET+LENGTH TEXT", then the
  // error.
  std::vector<std::string> Read(const std::string& json,
                                uint64_t max_length = 1000) {
    const std::string path = folder_ + "/a.json";
    WriteFile(path, json);
    const auto file = File::Open(path);
    EXPECT_TRUE(file.ok());
    EXPECT_EQ(IsJsonArray(*file).value(), json.find('[') < 4096);
    ElementReader reader(&*file, max_length);
    std::vector<std::string> found;
    while (true) {
      const auto element = reader.Next();
      if (!element.ok()) {
        EXPECT_EQ(element.status().code(), absl::StatusCode::kDataLoss);
        found.emplace_back(element.status().message());
        EXPECT_FALSE(reader.Next()->has_value());
        return found;
      }
      if (!element->has_value()) return found;
      const Line& line = **element;
      if (line.length <= max_length) {
        EXPECT_EQ(json.substr(line.offset, line.length), line.text);
      }
      found.push_back(absl::StrCat(line.number, "@", line.offset, "+",
                                   line.length, " ", line.text));
    }
  }

  const std::string folder_ = TestFolder();
};

TEST_F(ElementReaderTest, FindsElementsWhateverTheLayout) {
  EXPECT_THAT(Read("[]"), IsEmpty());
  EXPECT_THAT(Read("\xEF\xBB\xBF \n[ ]\n"), IsEmpty());
  EXPECT_THAT(Read("[{\"a\":1},{\"b\":[2]}]"),
              ElementsAre("1@1+7 {\"a\":1}", "2@9+9 {\"b\":[2]}"));
  EXPECT_THAT(Read("[\n  {\n    \"a\": 1\n  },\n  {}\n]\n"),
              ElementsAre("1@4+16 {\n    \"a\": 1\n  }", "2@24+2 {}"));
  // Brackets, commas and quotes inside a text are none.
  EXPECT_THAT(
      Read(R"([{"a":"]},\"[{\\"},{"b":"\\\""}])"),
      ElementsAre(R"(1@1+17 {"a":"]},\"[{\\"})", R"(2@19+12 {"b":"\\\""})"));
  EXPECT_THAT(
      Read("[1, \"two\", null , [3]]"),
      ElementsAre("1@1+1 1", "2@4+5 \"two\"", "3@11+4 null", "4@18+3 [3]"));
}

TEST_F(ElementReaderTest, NamesWhereAnArrayBreaksOff) {
  EXPECT_THAT(Read("[{\"a\":1},{\"b\":"),
              ElementsAre("1@1+7 {\"a\":1}",
                          HasSubstr("ends inside an element; was it cut? (byte "
                                    "14, behind element 2)")));
  EXPECT_THAT(Read("[{}, "), ElementsAre("1@1+2 {}", HasSubstr("was it cut?")));
  EXPECT_THAT(Read("["), ElementsAre(HasSubstr("was it cut?")));
  EXPECT_THAT(Read("[\"a"), ElementsAre(HasSubstr("inside a string")));
  EXPECT_THAT(Read("[{} {}]"),
              ElementsAre("1@1+2 {}", HasSubstr("found '{', wanted ','")));
  EXPECT_THAT(Read("[{},]"),
              ElementsAre("1@1+2 {}", HasSubstr("found ']', wanted an")));
  EXPECT_THAT(Read("[,{}]"), ElementsAre(HasSubstr("wanted an element")));
  EXPECT_THAT(Read("[{}]\n[{}]"),
              ElementsAre("1@1+2 {}", HasSubstr("something follows")));
}

TEST_F(ElementReaderTest, HoldsNoMoreThanItsBound) {
  const std::string large =
      absl::StrCat("{\"a\":\"", std::string(5000, 'x'), "\"}");
  EXPECT_THAT(Read(absl::StrCat("[", large, ",{}]"), 100),
              ElementsAre(absl::StrCat("1@1+", large.size(), " "),
                          absl::StrCat("2@", large.size() + 2, "+2 {}")));
}

// Elements that lie across the 1 MiB pieces in which the file is read.
TEST_F(ElementReaderTest, ReadsAcrossItsPieces) {
  std::string json = "[";
  std::vector<std::string> wanted;
  for (int i = 1; json.size() < 3 << 20; ++i) {
    const std::string element =
        absl::StrCat("{\"a\": \"", std::string(i % 700, '\\'),
                     i % 700 % 2 == 0 ? "" : "\\", "]\", \"b\": ", i, "}");
    if (i > 1) json += ",\n";
    wanted.push_back(
        absl::StrCat(i, "@", json.size(), "+", element.size(), " ", element));
    json += element;
  }
  EXPECT_EQ(Read(json + "]"), wanted);
}

// {"data": […]} as one file, and lines that each have such a list.
TEST_F(ElementReaderTest, ReadsTheListOfAWrapper) {
  EXPECT_THAT(Read("{\"data\": [{\"a\": 1}, {}]}\n"),
              ElementsAre("1@10+8 {\"a\": 1}", "2@20+2 {}"));
  const auto is_array = [](absl::string_view bytes) {
    const std::string path = TestFolder() + "/wrapped";
    WriteFile(path, bytes);
    auto file = File::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return IsJsonArray(*file).value_or(false);
  };
  EXPECT_TRUE(is_array(" { \"data\" : [ {}]}"));
  EXPECT_FALSE(is_array("{\"data\": [{}]}\n{\"data\": [{}]}\n"));
  EXPECT_FALSE(is_array("{\"data\": [1]}"));
  EXPECT_FALSE(is_array("{\"messages\": [{}]}"));
  // What describes the list may stand before it; another list may not.
  const std::string facts =
      R"({"version": "1, \"x\"", "info": {"a": {"b": "}"}}, )";
  EXPECT_THAT(Read(facts + R"("data": [{"a": 1}]})"),
              ElementsAre(HasSubstr("+8 {\"a\": 1}")));
  EXPECT_TRUE(is_array(facts + "\"data\": [{}]}"));
  EXPECT_FALSE(is_array(facts + "\"data\": [{}]}\n{\"version\": 2}"));
  EXPECT_FALSE(is_array("{\"valid\": [{}], \"train\": [{}]}"));
  EXPECT_FALSE(is_array("{\"id\": 1, \"data\": [{}]}"));
  EXPECT_FALSE(is_array("{\"version\": [1], \"data\": [{}]}"));
}

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
