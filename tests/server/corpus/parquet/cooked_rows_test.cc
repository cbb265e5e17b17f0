// Rows that a recipe cooks, against the same rows read without one.
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/python_helper.h"
#include "gmock/gmock.h"
#include "server/corpus/file.h"
#include "server/corpus/index/index_builder.h"
#include "server/corpus/open_source.h"
#include "server/corpus/parquet/parquet_file.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/parquet/parquet_testing.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

class CookedRowsTest : public ParquetTest {
 protected:
  void SetUp() override {
    if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
    ParquetTest::SetUp();
  }

  // What is said in a conversation, without marks, which readers of known
  // shapes add, and without null texts, which parts in columns have.
  static std::string Said(const std::string& text) {
    std::string said;
    Json sample = Json::parse(text);
    for (Json& turn : sample["messages"]) {
      for (Json& part : turn["content"]) {
        if (part.is_object() && part.value("text", Json()).is_null()) {
          part.erase("text");
        }
      }
    }
    for (const Json& turn : sample["messages"]) {
      absl::StrAppend(&said, turn["role"].get<std::string>(), ":",
                      turn["content"].dump(), ";");
    }
    return absl::StrReplaceAll(said, {{"<image>", ""}, {"\\n", ""}});
  }

  v1::Source Cooked(v1::Source source, absl::string_view body) {
    WriteFile(folder_ + "/my_recipe.py",
              absl::StrCat("import ballast.recipe as recipe\n@recipe.cook\n"
                           "def cook(record):\n    c = record.columns\n",
                           body));
    source.set_recipe("my_recipe.py");
    source.set_index("index/cooked.index");
    return source;
  }
};

TEST_F(CookedRowsTest, AreAsReadWithoutARecipe) {
  const std::map<std::string, std::string> recipes = {
      {"llava.parquet",
       "    return recipe.Sample([{'role': t['from'], 'content': t['value']}"
       " for t in c['conversations']],\n"
       "        images=[record.media('image')] if c['image'] else [])\n"},
      {"openai.parquet",
       "    return recipe.Sample(c['messages'], images=record.media('images')"
       " or [])\n"},
      {"finevision.parquet",
       "    return recipe.Sample([{'role': r, 'content': t[r]}"
       " for t in c['texts'] for r in ('user', 'assistant')],\n"
       "        images=record.media('images') or [])\n"}};
  for (const auto& [name, body] : recipes) {
    SCOPED_TRACE(name);
    const v1::Source plain = GetSource(name);
    const v1::Source cooked = Cooked(plain, body);
    ASSERT_EQ(Build(plain).bad.size(), 0u);
    const IndexReport report = Build(cooked);
    for (const BadSample& bad : report.bad) ADD_FAILURE() << bad.reason;
    const auto one = OpenSource(cooked, folder_, FakeKey());
    const auto other = OpenSource(plain, folder_, FakeKey());
    ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
    ASSERT_EQ((*one)->index().size(), (*other)->index().size());
    uint64_t images = 0;
    for (uint64_t i = 0; i < (*one)->index().size(); ++i) {
      const auto a = ReadSample(**one, i);
      const auto b = ReadSample(**other, i);
      ASSERT_TRUE(a.ok()) << a.status();
      ASSERT_TRUE(b.ok()) << b.status();
      EXPECT_EQ(Said(a->text), Said(b->text));
      ASSERT_EQ(a->images.size(), b->images.size());
      for (size_t k = 0; k < a->images.size(); ++k) {
        EXPECT_EQ(a->image(k), b->image(k));
      }
      images += a->images.size();
    }
    EXPECT_GT(images, 0u);
  }
}

TEST_F(CookedRowsTest, HaveAllColumnsOfAnyType) {
  WriteFile(path_, GetFile("other_types.parquet"));
  const auto file = File::Open(path_);
  ASSERT_TRUE(file.ok());
  ParquetColumns columns;
  columns.whole_rows = true;
  const auto opened = OpenParquetFile(&*file, columns);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto rows = (*opened)->Read(&*file, 0);
  ASSERT_TRUE(rows.ok()) << rows.status();
  const auto row = (*rows)->Row(0);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->images.size(), row->columns.size());
  const Json json = Json::parse(row->text);
  EXPECT_GT(json.size(), 1u);
  // Bytes are named by their numbers.
  for (size_t i = 0; i < row->images.size(); ++i) {
    EXPECT_THAT(row->text,
                HasSubstr(absl::StrCat("{\"$ballast.media\":", i, "}")));
  }
}

TEST_F(CookedRowsTest, PassTheFiltersFirst) {
  v1::Source plain = GetSource("filtered.parquet");
  const uint64_t all = Build(plain).samples;
  const v1::Source cooked =
      Cooked(plain, "    return recipe.Sample(text=str(sorted(c)))\n");
  EXPECT_EQ(Build(cooked).samples, all);
}

}  // namespace
}  // namespace ballast
