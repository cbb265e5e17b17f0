// Sources with a recipe, against the same samples in the forms that need none.
#include "server/data/cooked_parser.h"

#include <filesystem>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/python_helper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/sample/data_fault.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHead[] = "import ballast.recipe as recipe\n";

class CookedParserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  }

  void WriteRecipe(absl::string_view body, absl::string_view top = "") {
    WriteFile(
        folder_ + "/my_recipe.py",
        absl::StrCat(kHead, top, "@recipe.cook\ndef cook(record):\n", body));
  }

  static v1::Source Cooked(v1::Source::Format format, absl::string_view path) {
    v1::Source source = MakeSource(format, path);
    source.set_recipe("my_recipe.py");
    source.set_index("index/cooked.index");
    return source;
  }

  IndexReport Build(const v1::Source& source) {
    auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : IndexReport();
  }

  std::unique_ptr<FileSource> Open(const v1::Source& source) {
    auto opened = OpenSource(source, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  // Both have the same samples, in this order.
  void ExpectSame(const v1::Source& cooked, const v1::Source& plain) {
    const IndexReport report = Build(cooked);
    for (const BadSample& bad : report.bad) ADD_FAILURE() << bad.reason;
    Build(plain);
    const auto one = Open(cooked);
    const auto other = Open(plain);
    ASSERT_EQ(one->index().size(), other->index().size());
    for (uint64_t i = 0; i < one->index().size(); ++i) {
      SCOPED_TRACE(absl::StrCat("sample ", i));
      const auto a = ReadSample(*one, i);
      const auto b = ReadSample(*other, i);
      ASSERT_TRUE(a.ok()) << a.status();
      ASSERT_TRUE(b.ok()) << b.status();
      EXPECT_EQ(Json::parse(a->text), Json::parse(b->text));
      EXPECT_EQ(Images(*a), Images(*b));
      EXPECT_EQ(a->text_format, b->text_format);
      const auto sizes = [](const SampleSource& source, uint64_t n) {
        std::vector<std::pair<uint32_t, uint32_t>> all;
        const auto sample = source.index().sample(n);
        for (const ImageSize& size : sample->media.images()) {
          all.push_back({size.width, size.height});
        }
        return all;
      };
      EXPECT_EQ(sizes(*one, i), sizes(*other, i));
    }
  }

  const std::string folder_ = TestFolder();
};

constexpr char kAsk[] =
    "    marks = '<image>' * n\n"
    "    messages = [{'role': 'user', 'content': marks + row['q']},\n"
    "                {'role': 'assistant', 'content': row['a']}]\n";

std::string Messages(int i, int images) {
  std::string marks;
  for (int k = 0; k < images; ++k) marks += "<image>";
  return absl::StrCat(R"({"messages": [{"role": "user", "content": ")", marks,
                      "q", i, R"("}, {"role": "assistant", "content": "a)", i,
                      R"("}])");
}

TEST_F(CookedParserTest, LinesAreAsWrittenBeforehand) {
  std::string raw, plain;
  // More than a scan gives the recipe at once.
  for (int i = 0; i < 150; ++i) {
    const int images = i % 3;
    std::string pictures, paths;
    for (int k = 0; k < images; ++k) {
      const std::string path = absl::StrCat("m/", i, "-", k, ".jpg");
      WriteFile(folder_ + "/" + path, FakeImage(10 + i, 20 + k));
      absl::StrAppend(&paths, k > 0 ? ", " : "", "\"", path, "\"");
    }
    absl::StrAppend(&raw, R"({"q": "q)", i, R"(", "a": "a)", i,
                    R"(", "pics": [)", paths, "]}\n");
    absl::StrAppend(&plain, Messages(i, images), R"(, "images": [)", paths,
                    "]}\n");
  }
  WriteFile(folder_ + "/raw.jsonl", raw);
  WriteFile(folder_ + "/plain.jsonl", plain);
  WriteRecipe(absl::StrCat(
      "    row = record.json(); n = len(row['pics'])\n", kAsk,
      "    return recipe.Sample(messages, images=record.media('pics'))\n"));
  const v1::Source cooked = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  const v1::Source source = MakeSource(v1::Source::FORMAT_JSONL, "plain.jsonl");
  const IndexReport report = Build(cooked);
  for (const BadSample& bad : report.bad) ADD_FAILURE() << bad.reason;
  Build(source);
  const auto one = Open(cooked);
  const auto other = Open(source);
  ASSERT_EQ(one->index().size(), 150u);
  for (uint64_t i = 0; i < 150; ++i) {
    const auto a = ReadSample(*one, i);
    const auto b = ReadSample(*other, i);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    EXPECT_EQ(Json::parse(a->text)["messages"],
              Json::parse(b->text)["messages"]);
    EXPECT_EQ(Images(*a), Images(*b));
    EXPECT_EQ(a->name, absl::StrCat("raw.jsonl:", i + 1));
  }
}

TEST_F(CookedParserTest, MembersAreAsWrittenBeforehand) {
  std::vector<std::pair<std::string, std::string>> raw, plain;
  for (int i = 0; i < 5; ++i) {
    const std::string key = absl::StrCat("k", i);
    const std::string left = FakeImage(10 + i, 20);
    const std::string right = FakeImage(10 + i, 30);
    raw.push_back({key + ".right.jpg", right});
    raw.push_back({key + ".meta.json",
                   absl::StrCat(R"({"q": "q)", i, R"(", "a": "a)", i, "\"}")});
    raw.push_back({key + ".left.jpg", left});
    plain.push_back({key + ".json", Messages(i, 2) + "}"});
    plain.push_back({key + ".0.jpg", left});
    plain.push_back({key + ".1.jpg", right});
  }
  WriteTar(folder_ + "/raw.tar", raw);
  WriteTar(folder_ + "/plain.tar", plain);
  WriteRecipe(absl::StrCat(
      "    row = record.members['meta.json'].json(); n = 2\n", kAsk,
      "    return recipe.Sample(messages, images=[record.media('left.jpg'),"
      " record.media('right.jpg')])\n"));
  ExpectSame(Cooked(v1::Source::FORMAT_WEBDATASET, "raw.tar"),
             MakeSource(v1::Source::FORMAT_WEBDATASET, "plain.tar"));
}

TEST_F(CookedParserTest, SamplesThatAreLeftOutOrBadAreSaid) {
  std::string lines;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&lines, i, "\n");
  lines += "{no json\n";
  WriteFile(folder_ + "/raw.jsonl", lines);
  WriteRecipe(
      "    i = record.json()\n"
      "    if i % 10 == 3: return None\n"
      "    if i % 10 == 4: raise ValueError(i)\n"
      "    if i == 5: return recipe.Sample(text='x', images=['../out.jpg'])\n"
      "    if i == 6: return recipe.Sample(text='x', images=['none.jpg'])\n"
      "    if i == 7: return recipe.Sample(text='a <video> mark')\n"
      "    return recipe.Sample(text=str(i))\n");
  const IndexReport report =
      Build(Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl"));
  EXPECT_EQ(report.filtered, 10u);
  ASSERT_EQ(report.bad.size(), 14u);
  EXPECT_EQ(report.samples, 101u - 10 - 14);
  EXPECT_EQ(report.bad[0].key, "5");
  EXPECT_EQ(report.bad[0].kind, kByRecipe);
  EXPECT_THAT(report.bad[0].reason,
              HasSubstr("my_recipe.py, line 6, in cook: `if i % 10 == 4: raise "
                        "ValueError(i)`: ValueError: 4"));
  EXPECT_THAT(report.bad[1].reason, HasSubstr("out.jpg"));
  EXPECT_THAT(report.bad[2].reason, HasSubstr("none.jpg"));
  EXPECT_THAT(report.bad[3].reason, HasSubstr("<video>"));
  EXPECT_THAT(report.bad[13].reason, HasSubstr("JSONDecodeError"));
}

// Too much processor time says nothing of the record, so it is not listed: the
// message that ends the index names it.
TEST_F(CookedParserTest, WhatEndsTheIndexNamesTheRecord) {
  WriteFile(folder_ + "/raw.jsonl", "1\n2\n3\n");
  WriteRecipe(
      "    if record.json() == 2: signal.raise_signal(signal.SIGPROF)\n"
      "    return recipe.Sample(text='x')\n",
      "import signal\n");
  const auto report = BuildIndex(Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl"),
                                 folder_, FakeOptions());
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr("raw.jsonl:2: the recipe: my_recipe.py, line 5, in "
                        "cook: "));
}

TEST_F(CookedParserTest, TarsHaveNoPaths) {
  WriteTar(folder_ + "/raw.tar", {{"a.jpg", FakeImage(3, 4)},
                                  {"b.txt", "x"},
                                  {"b.txt", "y"},
                                  {"a.txt", "again"}});
  WriteRecipe(
      "    if record.key == 'a': return recipe.Sample(text='', "
      "images=['a.jpg'])\n");
  const IndexReport report =
      Build(Cooked(v1::Source::FORMAT_WEBDATASET, "raw.tar"));
  ASSERT_EQ(report.bad.size(), 3u);
  EXPECT_THAT(report.bad[0].reason, HasSubstr("wanted record.media(name)"));
  EXPECT_EQ(report.bad[1].reason, "two members .txt");
  EXPECT_THAT(report.bad[2].reason, HasSubstr("duplicate key"));
}

TEST_F(CookedParserTest, AnotherAnswerWhenServingIsADataFault) {
  WriteFile(folder_ + "/raw.jsonl", "{}\n{}\n{}\n");
  // Counts the records that its process has seen.
  WriteRecipe("    seen.append(1); return recipe.Sample(text=str(len(seen)))\n",
              "seen = []\n");
  const v1::Source source = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  Build(source);
  const auto opened = Open(source);
  const auto recipe = Recipes::OfProcess().Get(folder_ + "/my_recipe.py");
  ASSERT_TRUE(recipe.ok());
  (*recipe)->Restart();
  EXPECT_EQ(ReadSample(*opened, 0)->text, "1");
  const auto read = opened->Read(2, {});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_FALSE(read->ok());
  EXPECT_THAT(
      read->fault().reason(),
      AllOf(HasSubstr("raw.jsonl: sample 2"), HasSubstr("line 3"),
            HasSubstr("the recipe gave another sample when"),
            HasSubstr("must be pure"), Not(HasSubstr("the file has changed"))));
}

// A sample is cooked once for the modules that read it one after the other.
TEST_F(CookedParserTest, AnAnswerIsKeptForTheOtherModule) {
  WriteFile(folder_ + "/raw.jsonl", "{}\n");
  // The index's answer is the first, the first reading's the second.
  WriteRecipe(
      "    seen.append(1)\n"
      "    return recipe.Sample(text='same' if len(seen) < 3 else 'other')\n",
      "seen = []\n");
  const v1::Source source = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  Build(source);
  const auto opened = Open(source);
  EXPECT_EQ(ReadSample(*opened, 0)->text, "same");
  EXPECT_EQ(ReadSample(*opened, 0)->text, "same");
  const auto third = opened->Read(0, {});
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_FALSE(third->ok());
}

TEST_F(CookedParserTest, AnotherRecordIsTheFilesFault) {
  const std::string path = folder_ + "/raw.jsonl";
  WriteFile(path, "{\"a\": 1}\n");
  WriteRecipe("    return recipe.Sample(text='always')\n");
  const v1::Source source = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  Build(source);
  const auto opened = Open(source);
  const auto time = std::filesystem::last_write_time(path);
  WriteFile(path, "{\"a\": 2}\n");
  std::filesystem::last_write_time(path, time);
  const auto read = opened->Read(0, {});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_FALSE(read->ok());
  EXPECT_THAT(read->fault().reason(), AllOf(HasSubstr("the record is another"),
                                            HasSubstr("the file has changed")));
}

TEST_F(CookedParserTest, AnotherRecipeMakesTheIndexStale) {
  WriteFile(folder_ + "/raw.jsonl", "{}\n");
  WriteRecipe("    return recipe.Sample(text='one')\n");
  const v1::Source source = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  Build(source);
  EXPECT_TRUE(OpenSource(source, folder_, FakeKey()).ok());
  WriteRecipe("    return recipe.Sample(text='two')\n");
  EXPECT_THAT(
      std::string(OpenSource(source, folder_, FakeKey()).status().message()),
      HasSubstr("another recipe"));
  Build(source);
  EXPECT_EQ(ReadSample(*Open(source), 0)->text, "two");
  WriteFile(folder_ + "/my_recipe.py", "x = (\n");
  EXPECT_FALSE(OpenSource(source, folder_, FakeKey()).ok());
  const auto built = BuildIndex(source, folder_, FakeOptions());
  EXPECT_THAT(std::string(built.status().message()),
              AllOf(HasSubstr("sources[].recipe"), HasSubstr("line 1")));
}

TEST_F(CookedParserTest, MemoryDoesNotWaitForPython) {
  WriteFile(folder_ + "/raw.jsonl", "{}\n");
  WriteRecipe("    return recipe.Sample(text='x')\n");
  const v1::Source source = Cooked(v1::Source::FORMAT_JSONL, "raw.jsonl");
  Build(source);
  const auto opened = Open(source);
  ASSERT_TRUE(ReadSample(*opened, 0).ok());
  EXPECT_TRUE(absl::IsAborted(
      ReadSample(*opened, 0, {.from = ReadFrom::kMemory}).status()));
}

}  // namespace
}  // namespace ballast
