#include "server/corpus/jsonl/element_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/corpus/corpus_testing.h"

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

}  // namespace
}  // namespace ballast
