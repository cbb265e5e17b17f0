// Videos in rows of Parquet files, and in files that rows name.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/corpus/index/index_builder.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/corpus/fake_videos.h"
#include "tests/server/corpus/parquet/parquet_testing.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    EXPECT_EQ(sample->videos.size(), videos.size());
    EXPECT_EQ(indexed->videos.size(), videos.size());
    for (size_t i = 0; i < sample->videos.size(); ++i) {
      EXPECT_EQ(GetBytes(sample->videos[i]), videos[i]);
      absl::StrAppend(&shown, " ", indexed->videos[i].frames);
    }
    return shown;
  }
};

TEST_F(ParquetVideosTest, ReadsBytesAndPathsOfAColumn) {
  const v1::Source source = GetSource("video_structs.parquet");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.samples, 4u);
  EXPECT_EQ(report.videos, 3u);
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
  EXPECT_EQ(Build(source).videos, 3u);
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
                          HasSubstr("4: path \"../a.mp4\" holds \"..\"")));
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
  EXPECT_EQ(Build(source).videos, 1u);
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
  const IndexedVideo clip = first->videos[0];
  EXPECT_EQ(clip.flags, IndexedVideo::kHasStart | IndexedVideo::kHasEnd);
  EXPECT_EQ(clip.start, 0.1);
  EXPECT_EQ(clip.end, 2);
  EXPECT_EQ(clip.sample_fps, 0.5);
  EXPECT_EQ(first->videos[1].flags, 0u);
  EXPECT_EQ(first->videos[1].sample_fps, 0);
  EXPECT_EQ(opened->index().sample(1)->videos[0].flags, 0u);
}

// A column of datasets' type Audio, found by its name. A mark stands at the
// beginning of the question unless the text has one.
TEST_F(ParquetVideosTest, ReadsAudio) {
  const v1::Source source = GetSource("audio.parquet");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.videos, 0u);
  EXPECT_EQ(report.clips, 2u);
  EXPECT_THAT(BadOf(report), ElementsAre("4: audio 1: no video"));
  const auto opened = Open(source);
  const auto heard = [&](uint64_t ordinal) {
    const auto sample = ReadSample(*opened, ordinal);
    EXPECT_TRUE(sample.ok()) << sample.status();
    std::string text = Shown(*opened, ordinal, {});
    const auto indexed = opened->index().sample(ordinal);
    EXPECT_EQ(indexed->clips.size(), sample->clips.size());
    for (size_t i = 0; i < sample->clips.size(); ++i) {
      absl::StrAppend(&text, " ", GetBytes(sample->clips[i]).size(), " ",
                      indexed->clips[i].frames);
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
  EXPECT_EQ(Build(named).clips, 0u);
  named.mutable_columns()->set_audio("audio");
  named.set_index(".ballast/named.index");
  EXPECT_EQ(Build(named).clips, 2u);
}

TEST_F(ParquetVideosTest, RefusesAColumnOfAnotherShape) {
  const v1::Source source = GetSource("video_numbers.parquet");
  EXPECT_THAT(
      std::string(
          BuildIndex(source, folder_, FakeVideoOptions()).status().message()),
      HasSubstr("column video: found int64; wanted videos: "));
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
