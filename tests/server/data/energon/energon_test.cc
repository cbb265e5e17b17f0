// Folders of Energon, indexed and read. tests/server/data/energon/
// energon_prepare_test holds them against Energon's own.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/python_helper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/energon/energon_folder.h"
#include "server/data/energon/energon_index.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kVqa[] = R"(sample_type:
  __module__: megatron.energon
  __class__: VQASample
field_map:
  image: jpg,png
  context: json[0][value]
  answers: json[1][value]
)";

std::string MakeTurns(absl::string_view question, absl::string_view answer) {
  return absl::StrCat(R"([{"value": ")", question, R"("}, {"value": ")", answer,
                      R"("}])");
}

class EnergonTest : public ::testing::Test {
 protected:
  EnergonTest() { fs::create_directories(nv_); }

  // Two tars for train and one for val.
  void WriteFolder(const std::string& dataset = kVqa) {
    WriteTar(nv_ + "/a-0.tar", {{"x/1.jpg", FakeImage(3, 4)},
                                {"x/1.json", MakeTurns("Who?", "We.")},
                                {"x/2.json", MakeTurns("What?", "That.")},
                                {"x/2.png", FakeImage(5, 6)},
                                {"README", "no part of a sample"}});
    WriteTar(nv_ + "/a-1.tar", {{"x/3.json", MakeTurns("Why?", "So.")},
                                {"x/3.jpg", FakeImage(7, 8)}});
    WriteTar(nv_ + "/b-0.tar", {{"y/1.json", MakeTurns("When?", "Now.")},
                                {"y/1.jpg", FakeImage(9, 9)}});
    Prepare(dataset);
  }

  void Prepare(const std::string& dataset = kVqa) {
    const absl::Status written = WriteEnergonMeta(
        {nv_,
         {"a-0.tar", "a-1.tar", "b-0.tar"},
         {{"train", {"a-{0..1}.tar"}}, {"val", {"b-0.tar"}}, {"test", {}}},
         dataset});
    ASSERT_TRUE(written.ok()) << written;
  }

  IndexReport Build() {
    const auto report = BuildIndex(source_, folder_, FakeOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : IndexReport();
  }

  absl::Status Failure() {
    IndexOptions options = FakeOptions();
    options.reuse = false;
    return BuildIndex(source_, folder_, options).status();
  }

  // The samples as "NAME TEXT IMAGES".
  std::vector<std::string> Samples() {
    const auto opened = OpenSource(source_, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    std::vector<std::string> samples;
    if (!opened.ok()) return samples;
    for (uint64_t i = 0; i < (*opened)->index().size(); ++i) {
      const auto sample = (*opened)->Read(i, ReadParts());
      EXPECT_TRUE(sample.ok()) << sample.status();
      if (!sample.ok()) return samples;
      if (!sample->ok()) {
        samples.push_back(sample->fault().reason());
        continue;
      }
      samples.push_back(absl::StrCat((*sample)->name, " ", (*sample)->text));
      for (const std::string& image : Images(**sample)) {
        const auto size = ReadFakeImage(image);
        EXPECT_TRUE(size.ok());
        absl::StrAppend(&samples.back(), " ", size->width, "x", size->height);
      }
    }
    return samples;
  }

  void Replace(const std::string& file, absl::string_view from,
               absl::string_view to) {
    const std::string path = nv_ + "/.nv-meta/" + file;
    const std::string text = ReadFile(path);
    EXPECT_THAT(text, HasSubstr(std::string(from)));
    WriteFile(path, absl::StrReplaceAll(text, {{from, to}}));
  }

  const std::string folder_ = TestFolder();
  const std::string nv_ = folder_ + "/nv";
  v1::Source source_ = MakeSource(v1::Source::FORMAT_ENERGON, "nv");
};

TEST_F(EnergonTest, ReadsTheSplitThatTheSourceNames) {
  WriteFolder();
  const IndexReport report = Build();
  EXPECT_THAT(report.bad, IsEmpty());
  EXPECT_EQ(report.samples, 3);
  EXPECT_EQ(report.media[MediumKind::kImage], 3);
  const std::vector<std::string> train = Samples();
  ASSERT_EQ(train.size(), 3);
  EXPECT_THAT(train[0], HasSubstr("nv/a-0.tar: x/1 "));
  EXPECT_THAT(train[0], HasSubstr("Who?"));
  EXPECT_THAT(train[0], HasSubstr("We."));
  EXPECT_THAT(train[0], HasSubstr(" 3x4"));
  EXPECT_THAT(train[1], HasSubstr(" 5x6"));
  EXPECT_THAT(train[2], HasSubstr("nv/a-1.tar: x/3 "));
  source_.set_split(v1::SPLIT_VALID);
  source_.set_index("index/val.index");
  EXPECT_EQ(Build().samples, 1);
  EXPECT_THAT(Samples(), ElementsAre(HasSubstr("When?")));
  source_.set_split(v1::SPLIT_TEST);
  EXPECT_EQ(Failure().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Failure().message()),
              HasSubstr("split_parts.test: no shards"));
  source_.mutable_energon()->set_split_part("dev");
  EXPECT_EQ(Failure().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Failure().message()),
              HasSubstr("split_parts: no dev; it has train, val, test"));
}

TEST_F(EnergonTest, AQuestionStandsBehindItsImage) {
  WriteFolder();
  Build();
  const std::string text = Samples()[0];
  const size_t mark = text.find("<image>");
  ASSERT_NE(mark, text.npos);
  EXPECT_LT(mark, text.find("Who?"));
  EXPECT_LT(text.find("Who?"), text.find("We."));
}

// Without index.sqlite, as older Energon left it, the samples are the same.
TEST_F(EnergonTest, AnOlderFolderHasTheSameSamples) {
  WriteFolder();
  Build();
  const std::vector<std::string> wanted = Samples();
  const std::string index = ReadFile(folder_ + "/" + source_.index());
  fs::remove(nv_ + "/.nv-meta/index.sqlite");
  fs::rename(nv_ + "/.nv-meta/.info.json", nv_ + "/.nv-meta/.info.yaml");
  IndexOptions options = FakeOptions();
  options.reuse = false;
  ASSERT_TRUE(BuildIndex(source_, folder_, options).ok());
  EXPECT_EQ(Samples(), wanted);
  EXPECT_EQ(ReadFile(folder_ + "/" + source_.index()), index);
}

TEST_F(EnergonTest, LeavesOutWhatIsExcluded) {
  WriteFolder();
  Replace("split.yaml", "exclude: []",
          "exclude: [\"a-0.tar/x/{1..1}\", a-1.tar]");
  const IndexReport report = Build();
  EXPECT_EQ(report.filtered, 1);
  EXPECT_THAT(Samples(), ElementsAre(HasSubstr("What?")));
  // Another list is another index.
  Replace("split.yaml", "x/{1..1}", "x/2");
  EXPECT_EQ(CheckIndexFresh(source_, folder_, FakeKey()).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(EnergonTest, ListsBadSamples) {
  WriteFolder();
  WriteTar(nv_ + "/a-0.tar", {{"1.json", MakeTurns("Q", "A")},
                              {"2.jpg", FakeImage(1, 1)},
                              {"3.json", "["},
                              {"3.jpg", FakeImage(1, 1)},
                              {"4.json", R"([{"value": 7}, {"value": "A"}])"},
                              {"4.jpg", FakeImage(1, 1)},
                              {"5.json", MakeTurns("Q <video>", "A")},
                              {"5.jpg", FakeImage(1, 1)},
                              {"6.json", MakeTurns("Q", "A")},
                              {"6.jpg", "no image"},
                              {"7.json", R"([{"value": "Q"}])"},
                              {"7.jpg", FakeImage(1, 1)},
                              {"8.json", MakeTurns("Q", "A")},
                              {"8.jpg", FakeImage(1, 1)}});
  Prepare();
  const IndexReport report = Build();
  EXPECT_EQ(report.samples, 2);
  std::vector<std::string> bad;
  for (const BadSample& each : report.bad) {
    bad.push_back(absl::StrCat(each.key, ": ", each.reason));
  }
  EXPECT_THAT(
      bad,
      ElementsAre(HasSubstr("1: field image: no jpg or png; its parts are "
                            "json"),
                  HasSubstr("2: field context: no json[0][value]; its"),
                  HasSubstr("3: json: not JSON"),
                  HasSubstr("4: field context: found 7; wanted a text"),
                  HasSubstr("5: video is not supported"), HasSubstr("6: jpg: "),
                  HasSubstr("7: field answers: no json[1][value]")));
}

TEST_F(EnergonTest, MakesConversationsOfOtherTypes) {
  WriteTar(nv_ + "/a-0.tar", {{"1.jpg", FakeImage(1, 2)}, {"1.txt", "A cat."}});
  WriteTar(nv_ + "/a-1.tar", {{"2.jpg", FakeImage(1, 2)}, {"2.txt", "A dog."}});
  WriteTar(nv_ + "/b-0.tar", {{"3.jpg", FakeImage(1, 2)}, {"3.txt", "x"}});
  Prepare(
      "sample_type: {__module__: megatron.energon, __class__: "
      "CaptioningSample}\nfield_map: {image: jpg, caption: txt}\n");
  Build();
  const std::string caption = Samples()[0];
  EXPECT_THAT(caption, HasSubstr("<image>"));
  EXPECT_THAT(caption, HasSubstr("A cat."));
  EXPECT_THAT(caption, HasSubstr(" 1x2"));
  // A class at the top, as older folders have it.
  Prepare(
      "__module__: megatron.energon\n__class__: TextWebdataset\n"
      "field_map: {text: txt}\n");
  Build();
  EXPECT_THAT(Samples(),
              ElementsAre("nv/a-0.tar: 1 A cat.", "nv/a-1.tar: 2 A dog."));
}

TEST_F(EnergonTest, ReadsCrudeSamplesIfTold) {
  WriteTar(nv_ + "/a-0.tar", {{"1.json", R"({"conversations": [1]})"},
                              {"1.1.jpg", FakeImage(3, 3)},
                              {"1.0.jpg", FakeImage(2, 2)},
                              {"1.other", "x"}});
  WriteTar(nv_ + "/a-1.tar", {{"2.txt", "A document."},
                              {"4.txt", "x"},
                              {"4.mp4", "x"},
                              {"5.json",
                               R"({"messages": [{"role": "user", "content": [
                 {"type": "image", "image": "5.1.jpg"},
                 {"type": "image", "image": "5.0.jpg"}]}]})"},
                              {"5.0.jpg", FakeImage(2, 2)},
                              {"5.1.jpg", FakeImage(3, 3)}});
  WriteTar(nv_ + "/b-0.tar", {{"3.txt", "x"}});
  Prepare(kCrudeDataset);
  const absl::Status status = Failure();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("CrudeWebdataset: its samples are made by a cooker, "
                        "which is Python: write it as a recipe"));
  source_.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  const IndexReport report = Build();
  ASSERT_EQ(report.bad.size(), 2u);
  EXPECT_THAT(report.bad[0].reason,
              HasSubstr("4.mp4: video is not supported for this model"));
  EXPECT_THAT(report.bad[1].reason,
              HasSubstr("names 5.1.jpg in place 1, and image 1 is 5.0.jpg"));
  EXPECT_THAT(Samples(),
              ElementsAre("nv/a-0.tar: 1 {\"conversations\": [1]} 2x2 3x3",
                          "nv/a-1.tar: 2 A document."));
}

TEST_F(EnergonTest, RefusesByNameWhatCannotRunHere) {
  WriteFolder();
  const auto refused = [&](const std::string& dataset) {
    WriteFile(nv_ + "/.nv-meta/dataset.yaml", dataset);
    return std::string(Failure().message());
  };
  EXPECT_THAT(
      refused("sample_type: {__module__: my.code, __class__: VQASample}"),
      HasSubstr("sample_type my.code.VQASample makes no conversation"));
  EXPECT_THAT(refused("sample_type: {__module__: megatron.energon, __class__: "
                      "InterleavedSample}\nfield_map: {sequence: json}"),
              HasSubstr("sample_type InterleavedSample makes no conversation"));
  EXPECT_THAT(
      refused("sample_type: {__module__: megatron.energon, __class__: "
              "VQASample}\nsample_loader: sample_loader.py:sample_loader\n"
              "part_filter: sample_loader.py:part_filter"),
      HasSubstr("sample_loader sample_loader.py:sample_loader is Python and "
                "cannot run here"));
  const std::string vqa =
      "sample_type: {__module__: megatron.energon, __class__: VQASample}\n";
  EXPECT_THAT(refused(vqa + "field_map: {image: jpg, context: txt}"),
              HasSubstr("field_map: no answers, which VQASample needs"));
  EXPECT_THAT(refused(vqa + "field_map: {image: jpg, picture: txt}"),
              HasSubstr("found picture, which VQASample does not have"));
  EXPECT_THAT(refused(vqa + "field_map: {image: 'json[a]', context: txt}"),
              HasSubstr("field_map.image: found json[a]"));
  EXPECT_THAT(refused(vqa + "field_map: {context: pyd}"),
              HasSubstr("field_map.context: found pyd; wanted a text"));
  EXPECT_THAT(refused("[1, 2"), HasSubstr("not YAML"));
  EXPECT_THAT(refused(""), HasSubstr("no sample_type"));
}

TEST_F(EnergonTest, NamesWhatIsMissing) {
  EXPECT_THAT(std::string(Failure().message()),
              HasSubstr("nv: no folder .nv-meta, which `energon prepare` "
                        "makes"));
  for (const char* file : {"dataset.yaml", "split.yaml", ".info.json"}) {
    WriteFolder();
    fs::remove(nv_ + "/.nv-meta/" + file);
    EXPECT_EQ(Failure().code(), absl::StatusCode::kNotFound) << file;
  }
  WriteFolder();
  fs::remove(nv_ + "/a-1.tar");
  EXPECT_THAT(std::string(Failure().message()), HasSubstr("a-1.tar"));
  WriteFolder();
  Replace("split.yaml", "a-{0..1}.tar", "../a-0.tar");
  EXPECT_THAT(std::string(Failure().message()), HasSubstr("holds \"..\""));
  WriteFolder();
  Replace("split.yaml", "a-{0..1}.tar", "a-{0,0}.tar");
  EXPECT_THAT(std::string(Failure().message()), HasSubstr("a-0.tar twice"));
  WriteFolder();
  Replace("split.yaml", "a-{0..1}.tar", "a-7.tar");
  EXPECT_THAT(std::string(Failure().message()),
              HasSubstr("a-7.tar is not in shard_counts of .info"));
}

// A tar that was written again behind Energon's back.
TEST_F(EnergonTest, HoldsTheTarsAgainstTheDatabase) {
  WriteFolder();
  WriteTar(nv_ + "/a-0.tar", {{"x/1.json", MakeTurns("Who?", "We.")},
                              {"x/1.jpg", FakeImage(3, 4)},
                              {"x/2.json", MakeTurns("What?", "That.")},
                              {"x/2.png", FakeImage(5, 6)},
                              {"README", "no part of a sample"}});
  const IndexReport report = Build();
  ASSERT_EQ(report.bad.size(), 1);
  EXPECT_EQ(report.bad[0].key, "x/1");
  EXPECT_THAT(report.bad[0].reason,
              HasSubstr("index.sqlite has other parts at this place"));
  Replace(".info.json", "\"a-0.tar\": 2", "\"a-0.tar\": 3");
  EXPECT_THAT(std::string(Failure().message()),
              HasSubstr("a-0.tar: 2 samples, .info of the folder has 3"));
}

TEST_F(EnergonTest, ARecipeTakesThePlaceOfACooker) {
  if (FindPythons().empty()) GTEST_SKIP() << "there is no python3";
  WriteFolder("sample_type: {__module__: my_code, __class__: MyOwnSample}\n");
  WriteFile(folder_ + "/my_recipe.py",
            "import ballast.recipe as recipe\n"
            "@recipe.cook\n"
            "def cook(record):\n"
            "    if record.key == 'x/2': return None\n"
            "    turns = record.json()\n"
            "    return recipe.Sample(text=turns[0]['value'] + "
            "turns[1]['value'], images=[record.media('jpg')])\n");
  source_.set_recipe("my_recipe.py");
  const auto report = BuildIndex(source_, folder_, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->bad.size(), 0u);
  EXPECT_EQ(report->filtered, 1u);
  const auto opened = OpenSource(source_, folder_, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  ASSERT_EQ((*opened)->index().size(), 2u);
  const auto first = ReadSample(**opened, 0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->text, "Who?We.");
  EXPECT_THAT(Images(*first), ElementsAre(FakeImage(3, 4)));
  EXPECT_EQ(ReadSample(**opened, 1)->text, "Why?So.");
}

// Every cut and every kind of damage ends in an error or bad samples.
TEST_F(EnergonTest, EndsWellWithADamagedDatabase) {
  WriteFolder();
  const std::string path = nv_ + "/.nv-meta/index.sqlite";
  const std::string whole = ReadFile(path);
  IndexOptions options = FakeOptions();
  options.reuse = false;
  for (size_t size = 0; size < whole.size(); size += 251) {
    WriteFile(path, whole.substr(0, size));
    const auto report = BuildIndex(source_, folder_, options);
    ASSERT_FALSE(report.ok()) << size;
    EXPECT_THAT(std::string(report.status().message()),
                HasSubstr("index.sqlite"));
  }
  for (size_t at = 0; at < whole.size(); at += 61) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] + 1);
    WriteFile(path, damaged);
    const auto report = BuildIndex(source_, folder_, options);
    if (!report.ok()) continue;
    EXPECT_EQ(report->samples + report->bad.size(), 3) << at;
  }
  WriteFile(path, "not a database, but as long as a page of one");
  EXPECT_THAT(std::string(Failure().message()), HasSubstr("index.sqlite"));
}

TEST_F(EnergonTest, FollowsEnergonsRuleOfNames) {
  const auto parse = [](absl::string_view name) -> std::string {
    const auto found = ParseEnergonMember(name);
    return found ? absl::StrCat(found->key, "|", found->part) : "none";
  };
  EXPECT_EQ(parse("a.jpg"), "a|jpg");
  EXPECT_EQ(parse("a.0.jpg"), "a|0.jpg");
  EXPECT_EQ(parse("d.e/a.jpg"), "d.e/a|jpg");
  EXPECT_EQ(parse("./a.jpg"), "./a|jpg");
  EXPECT_EQ(parse("a"), "none");
  EXPECT_EQ(parse("d.e/a"), "none");
  EXPECT_EQ(parse(".jpg"), "none");
  EXPECT_EQ(parse("d/.jpg"), "d/|jpg");
  EXPECT_EQ(parse("d.e/.jpg"), "none");
  EXPECT_EQ(parse("__meta__"), "none");
  EXPECT_EQ(parse("__meta__/a.jpg"), "none");
  EXPECT_EQ(parse("__a__.jpg"), "__a__|jpg");
  EXPECT_EQ(parse("d/__meta__/a.jpg"), "d/__meta__/a|jpg");
}

TEST(EnergonAccessTest, SplitsAFieldMap) {
  using Ways = std::vector<EnergonAccess>;
  EXPECT_EQ(ParseEnergonAccess("jpg"), (Ways{{"jpg", {}}}));
  EXPECT_EQ(ParseEnergonAccess("jpg,0.png"),
            (Ways{{"jpg", {}}, {"0.png", {}}}));
  EXPECT_EQ(ParseEnergonAccess("json[a][0]"), (Ways{{"json", {"a", "0"}}}));
  EXPECT_EQ(ParseEnergonAccess("json[a]x"), (Ways{{"json[a]x", {}}}));
  EXPECT_EQ(ParseEnergonAccess("[a]"), (Ways{{"[a]", {}}}));
  EXPECT_EQ(ParseEnergonAccess("json[]"), (Ways{{"json[]", {}}}));
}

}  // namespace
}  // namespace ballast
