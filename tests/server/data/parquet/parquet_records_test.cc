// Damaged Parquet files: an error or bad samples, and never a sample with other
// content than it had.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/python_helper.h"
#include "gmock/gmock.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/file.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/fake_videos.h"
#include "tests/server/data/parquet/parquet_testing.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ParquetDamageTest : public ParquetTest {
 protected:
  // Indexes `bytes` in place of the file; every sample that the index has must
  // be readable.
  absl::StatusOr<IndexReport> Index(const v1::Source& source,
                                    absl::string_view bytes) {
    WriteFile(path_, bytes);
    const auto report = BuildIndex(source, folder_, FakeOptions());
    if (!report.ok()) return report;
    const auto opened = Open(source);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      EXPECT_TRUE(ReadSample(*opened, i).ok());
    }
    return report;
  }
};

TEST_F(ParquetDamageTest, TruncatedFilesAreBad) {
  const v1::Source source = GetSource("finevision.parquet");
  const std::string whole = GetFile("finevision.parquet");
  for (size_t size = 0; size < whole.size(); size += 1 + size / 20) {
    const auto report = Index(source, whole.substr(0, size));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->samples, 0u);
    ASSERT_EQ(report->bad.size(), 1u);
    EXPECT_THAT(report->bad[0].reason, HasSubstr("damaged or not Parquet"));
  }
}

TEST_F(ParquetDamageTest, DamagedPagesCostTheirRowGroup) {
  const v1::Source source = GetSource("other_types.parquet");
  std::string bytes = GetFile("other_types.parquet");
  // The first row group: pages have checksums.
  bytes[200] ^= 1;
  const auto report = Index(source, bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2u);
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason, HasSubstr("row group of rows 1 to 5"));
}

TEST_F(ParquetDamageTest, AnyDamageIsAnErrorOrBadSamples) {
  std::mt19937_64 random(7);
  for (const char* name :
       {"finevision.parquet", "openai.parquet", "llava.parquet",
        "other_types.parquet", "pages_coded.parquet", "pages_zstd_2.parquet"}) {
    const v1::Source source = GetSource(name);
    const std::string whole = GetFile(name);
    for (int round = 0; round < 150; ++round) {
      std::string bytes = whole;
      // Half of the damage is in the footer, which rules the rest.
      const size_t span = round % 2 == 0 ? bytes.size() : bytes.size() / 2;
      for (uint64_t i = 0; i <= random() % 4; ++i) {
        bytes[bytes.size() - 1 - random() % span] ^= 1 << random() % 8;
      }
      SCOPED_TRACE(absl::StrCat(name, " round ", round));
      const auto report = Index(source, bytes);
      if (report.ok()) continue;
      EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition)
          << report.status();
    }
  }
}

TEST_F(ParquetDamageTest, DamageAfterIndexingIsADataFault) {
  const v1::Source source = GetSource("finevision.parquet");
  Build(source);
  const std::string whole = GetFile("finevision.parquet");
  const auto time = std::filesystem::last_write_time(path_);
  std::vector<RawSample> expected;
  {
    const auto opened = Open(source);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      auto sample = ReadSample(*opened, i);
      ASSERT_TRUE(sample.ok()) << sample.status();
      expected.push_back(*std::move(sample));
    }
  }
  std::mt19937_64 random(3);
  int faults = 0;
  for (int round = 0; round < 200; ++round) {
    std::string bytes = whole;
    bytes[random() % bytes.size()] ^= 1 << random() % 8;
    WriteFile(path_, whole);
    std::filesystem::last_write_time(path_, time);
    const auto opened = Open(source);
    WriteFile(path_, bytes);
    // In a file of another time nothing is a data fault.
    const auto touched = opened->Read(round % expected.size(), {});
    EXPECT_TRUE(!touched.ok() || touched->ok());
    std::filesystem::last_write_time(path_, time);
    for (uint64_t i = 0; i < opened->index().size(); ++i) {
      const auto read = opened->Read(i, {});
      ASSERT_TRUE(read.ok()) << read.status();
      if (!read->ok()) {
        ++faults;
        continue;
      }
      EXPECT_EQ((*read)->text, expected[i].text);
      // Of images the index knows the length and the first 4096 bytes.
      ASSERT_EQ((*read)->media.size(), expected[i].media.size());
      for (size_t k = 0; k < expected[i].media.size(); ++k) {
        const absl::string_view image = (*read)->media[k].file();
        const absl::string_view wanted = expected[i].media[k].file();
        EXPECT_EQ(image.size(), wanted.size());
        EXPECT_TRUE(image.substr(0, 4096) == wanted.substr(0, 4096));
      }
    }
  }
  EXPECT_GT(faults, 0);
}

// Rows that a recipe cooks, against the same rows read without one.

using Json = nlohmann::json;

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
      ASSERT_EQ(Images(*a).size(), Images(*b).size());
      for (size_t k = 0; k < Images(*a).size(); ++k) {
        EXPECT_EQ(a->media[k].file(), b->media[k].file());
      }
      images += Images(*a).size();
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

// Videos in rows of Parquet files, and in files that rows name.

using ::testing::ElementsAre;

class ParquetVideosTest : public ParquetTest {
 protected:
  void SetUp() override {
    ParquetTest::SetUp();
    if (!IsSkipped()) WriteFile(folder_ + "/a.mp4", FakeVideo(9, 5000));
  }

  static std::vector<std::string> BadOf(const IndexReport& report) {
    std::vector<std::string> bad;
    for (const BadSample& row : report.bad) {
      bad.push_back(absl::StrCat(row.key, ": ", row.reason));
    }
    return bad;
  }

  // The content of the first turn, and the frames that the index has of each
  // video; checks that the videos are those that it was built from.
  static std::string Shown(const FileSource& source, uint64_t ordinal,
                           const std::vector<std::string>& videos) {
    const auto sample = ReadSample(source, ordinal);
    EXPECT_TRUE(sample.ok()) << sample.status();
    const auto indexed = source.index().sample(ordinal);
    EXPECT_TRUE(indexed.ok()) << indexed.status();
    if (!sample.ok() || !indexed.ok()) return "";
    const auto json = nlohmann::json::parse(sample->text);
    std::string shown = json["messages"][0]["content"].dump();
    EXPECT_EQ(Videos(*sample).size(), videos.size());
    EXPECT_EQ(Videos(*indexed).size(), videos.size());
    for (size_t i = 0; i < Videos(*sample).size(); ++i) {
      EXPECT_EQ(GetBytes(Videos(*sample)[i]), videos[i]);
      absl::StrAppend(&shown, " ", Videos(*indexed)[i].frames);
    }
    return shown;
  }
};

TEST_F(ParquetVideosTest, ReadsBytesAndPathsOfAColumn) {
  const v1::Source source = GetSource("video_structs.parquet");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.samples, 4u);
  EXPECT_EQ(report.media[MediumKind::kVideo], 3u);
  EXPECT_THAT(BadOf(report), ElementsAre("5: video 1: no video",
                                         HasSubstr("gone.mp4: cannot open")));
  EXPECT_EQ(report.bad[1].kind, "video missing");
  const auto opened = Open(source);
  EXPECT_EQ(Shown(*opened, 0, {FakeVideo(5, 9000)}), R"("<video>\nq" 5)");
  // A mark is added where the turns have none, and `<image>` is one.
  EXPECT_EQ(Shown(*opened, 1, {FakeVideo(9, 5000)}), R"("<video>q" 9)");
  EXPECT_EQ(Shown(*opened, 2, {FakeVideo(6)}), R"("<image>q" 6)");
  EXPECT_EQ(Shown(*opened, 3, {}), R"("q")");
}

TEST_F(ParquetVideosTest, ReadsListsBesideImages) {
  const v1::Source source = GetSource("video_lists.parquet");
  EXPECT_EQ(Build(source).media[MediumKind::kVideo], 3u);
  const auto opened = Open(source);
  EXPECT_EQ(Shown(*opened, 0, {FakeVideo(5), FakeVideo(6)}),
            R"("<video><video>q" 5 6)");
  EXPECT_EQ(Shown(*opened, 1, {FakeVideo(7)}), R"("<image><video>q" 7)");
}

TEST_F(ParquetVideosTest, FollowsPathsBelowMediaRoot) {
  const v1::Source source = GetSource("video_paths.parquet");
  const IndexReport report = Build(source);
  EXPECT_THAT(BadOf(report),
              ElementsAre(HasSubstr("3: video \"https://x/a.mp4\" is a URL"),
                          HasSubstr("../a.mp4: cannot open")));
  EXPECT_EQ(report.bad[0].kind, "video is a URL");
  const auto opened = Open(source);
  EXPECT_EQ(Shown(*opened, 0, {FakeVideo(9, 5000)}), R"("<video>q" 9)");
  EXPECT_EQ(Shown(*opened, 1, {}), R"("q")");
  // Another video in its place, with its time, is a data fault.
  const auto time = std::filesystem::last_write_time(folder_ + "/a.mp4");
  WriteFile(folder_ + "/a.mp4", FakeVideo(8, 5000));
  std::filesystem::last_write_time(folder_ + "/a.mp4", time);
  const auto changed = opened->Read(0, ReadParts());
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_FALSE(changed->ok());
  EXPECT_THAT(changed->fault().reason(),
              HasSubstr("the length or the header of an image or a video is "
                        "not the index's"));
}

TEST_F(ParquetVideosTest, ReadsWhatPartsOfMessagesName) {
  const v1::Source source = GetSource("video_parts.parquet");
  EXPECT_EQ(Build(source).media[MediumKind::kVideo], 1u);
  EXPECT_EQ(Shown(*Open(source), 0, {FakeVideo(9, 5000)}),
            R"([{"type":"video"},{"text":"q","type":"text"}] 9)");
}

// As in JSON lines: the model sees the clip, not the whole video.
TEST_F(ParquetVideosTest, ReadsTheClipsOfParts) {
  const v1::Source source = GetSource("video_clips.parquet");
  const IndexReport report = Build(source);
  EXPECT_THAT(
      BadOf(report),
      ElementsAre(HasSubstr("a.mp4: a clip from 3.5 s to 2 s"),
                  HasSubstr("4: `max_pixels` of one video is not supported"),
                  "5: turn 1: content part 1: `video_start` is no number",
                  HasSubstr("6: `max_pixels` of one image is not supported")));
  const auto opened = Open(source);
  ASSERT_EQ(opened->index().size(), 2u);
  Shown(*opened, 0, {FakeVideo(9, 5000), FakeVideo(9, 5000)});
  const auto first = opened->index().sample(0);
  ASSERT_TRUE(first.ok()) << first.status();
  const StreamFacts clip = Videos(*first)[0];
  EXPECT_EQ(clip.flags, StreamFacts::kHasStart | StreamFacts::kHasEnd);
  EXPECT_EQ(clip.start, 0.1);
  EXPECT_EQ(clip.end, 2);
  EXPECT_EQ(clip.sample_fps, 0.5);
  EXPECT_EQ(Videos(*first)[1].flags, 0u);
  EXPECT_EQ(Videos(*first)[1].sample_fps, 0);
  EXPECT_EQ(Videos(*opened->index().sample(1))[0].flags, 0u);
}

// A column of datasets' type Audio, found by its name. A mark stands at the
// beginning of the question unless the text has one.
TEST_F(ParquetVideosTest, ReadsAudio) {
  const v1::Source source = GetSource("audio.parquet");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.media[MediumKind::kVideo], 0u);
  EXPECT_EQ(report.media[MediumKind::kAudio], 2u);
  EXPECT_THAT(BadOf(report), ElementsAre("4: audio 1: no video"));
  const auto opened = Open(source);
  const auto heard = [&](uint64_t ordinal) {
    const auto sample = ReadSample(*opened, ordinal);
    EXPECT_TRUE(sample.ok()) << sample.status();
    std::string text = Shown(*opened, ordinal, {});
    const auto indexed = opened->index().sample(ordinal);
    EXPECT_EQ(Clips(*indexed).size(), Clips(*sample).size());
    for (size_t i = 0; i < Clips(*sample).size(); ++i) {
      absl::StrAppend(&text, " ", GetBytes(Clips(*sample)[i]).size(), " ",
                      Clips(*indexed)[i].frames);
    }
    return text;
  };
  EXPECT_EQ(heard(0), R"("<audio>q" 9016 5)");
  EXPECT_EQ(heard(1), R"("<audio>\nq" 5016 9)");
  EXPECT_EQ(heard(2), R"("q")");
  // A column that is named, beside one that may be left out.
  v1::Source named = source;
  named.mutable_columns()->set_conversations("conversations");
  named.set_index(".ballast/silent.index");
  EXPECT_EQ(Build(named).media[MediumKind::kAudio], 0u);
  named.mutable_columns()->set_audio("audio");
  named.set_index(".ballast/named.index");
  EXPECT_EQ(Build(named).media[MediumKind::kAudio], 2u);
  v1::Source preset = source;
  preset.set_preset(v1::Source::PRESET_LLAVA);
  preset.set_index(".ballast/preset.index");
  EXPECT_EQ(Build(preset).media[MediumKind::kAudio], 2u);
  // Beside a document of parallel lists.
  const v1::Source places = GetSource("audio_places.parquet");
  EXPECT_EQ(Build(places).media[MediumKind::kAudio], 3u);
  EXPECT_EQ(Clips(*ReadSample(*Open(places), 1)).size(), 1u);
}

TEST_F(ParquetVideosTest, ComparesMediaWithTheTurnsThatNameThem) {
  EXPECT_THAT(
      BadOf(Build(GetSource("media_turns.parquet"))),
      ElementsAre(
          "2: a part of type video names b.mp4 in place 1, and video 1 of "
          "column videos is a.mp4; wanted the videos in the order of their "
          "parts and marks",
          "3: a part of type audio names b.mp4 in place 1, and audio 1 of "
          "column audio is a.mp4; wanted the audios in the order of their "
          "parts and marks"));
  v1::Source pairs = GetSource("pair_turns.parquet");
  pairs.set_pairs(true);
  IndexOptions options = FakeVideoOptions();
  options.pairs = true;
  const auto report = BuildIndex(pairs, folder_, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 1u);
  EXPECT_THAT(BadOf(*report),
              ElementsAre(HasSubstr("2: a part of type image names 2.jpg in "
                                    "place 1, and image 1")));
}

TEST_F(ParquetVideosTest, RefusesAColumnOfAnotherShape) {
  const v1::Source source = GetSource("video_numbers.parquet");
  const auto fault = [&](const v1::Source& refused) {
    return std::string(
        BuildIndex(refused, folder_, FakeVideoOptions()).status().message());
  };
  EXPECT_THAT(fault(source),
              HasSubstr("column video: found int64; wanted videos: "));
  // Samples in place of a file, as datasets gives a decoded clip.
  const v1::Source arrays = GetSource("audio_arrays.parquet");
  EXPECT_THAT(fault(arrays),
              AllOf(HasSubstr("column audio: found struct<array"),
                    HasSubstr("wanted audio: ")));
  v1::Source left_out = arrays;
  left_out.mutable_columns()->set_conversations("conversations");
  EXPECT_EQ(Build(left_out).samples, 1u);
  // Without a model of videos, rows that have some are bad.
  const v1::Source other = GetSource("video_paths.parquet");
  const auto report = BuildIndex(other, folder_, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 1u);
  EXPECT_THAT(report->bad[0].reason,
              AllOf(HasSubstr("video is not supported for this model.profile"),
                    HasSubstr("qwen2_5_omni")));
}

}  // namespace
}  // namespace ballast
