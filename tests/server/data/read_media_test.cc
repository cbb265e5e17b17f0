#include "server/data/read_media.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"
#include "tests/server/data/fake_videos.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ReadMediaTest, CopiesWhatIsInMemory) {
  std::string memory(3, '?');
  const auto place = [&](size_t image, size_t images, uint64_t size) {
    EXPECT_EQ(images, 3u);
    return image == 1 && size == 3 ? memory.data() : nullptr;
  };
  const ImagePlaces places = place;
  for (const ImagePlaces* each :
       {&places, static_cast<const ImagePlaces*>(nullptr)}) {
    const std::string path = TestFolder() + "/data";
    WriteFile(path, "");
    const auto file = File::Open(path);
    ASSERT_TRUE(file.ok());
    RawSample sample;
    const ReadParts parts = {.places = each};
    MediaReader reader(&*file, nullptr, 0, 100, 3, parts, &sample);
    ImagesHash wanted;
    for (const absl::string_view image : {"first", "two", "3"}) {
      ASSERT_TRUE(reader.Add({.parts = {{"", image}}}).ok());
      wanted.Add(image.size(), image);
    }
    EXPECT_EQ(sample.media[0].file(), "first");
    EXPECT_EQ(sample.media[1].file(), "two");
    EXPECT_EQ(sample.media[2].file(), "3");
    EXPECT_EQ(sample.media[1].bytes, each == nullptr ? "two" : "");
    EXPECT_EQ(reader.image_check(), wanted.value());
  }
  EXPECT_EQ(memory, "two");
}

// The files of images for which the caller has a place are read there; the
// others are strings.
TEST(ReadMediaTest, FilesGoToTheirPlaces) {
  const std::string folder = TestFolder();
  const std::string first = FakeImage(1, 2, 300);
  const std::string second = FakeImage(3, 4, 70);
  WriteFile(folder + "/docs-0.tar", TarEntry("a.txt", "x") +
                                        TarEntry("a.0.jpg", first) +
                                        TarEntry("a.1.jpg", second) + TarEnd());
  WriteFile(folder + "/m/a.jpg", first);
  WriteFile(folder + "/m/b.jpg", second);
  WriteFile(folder + "/chat.jsonl", R"({"image": ["m/a.jpg", "m/b.jpg"]})");
  const v1::Source tars =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar");
  const v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  for (const v1::Source& format : {tars, lines}) {
    SCOPED_TRACE(format.format());
    const auto report = BuildIndex(format, folder, FakeOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    const auto opened = OpenSource(format, folder, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    const SampleSource& source = **opened;
    for (const size_t taken : {0, 1}) {
      std::string memory(first.size(), '?');
      const auto place = [&](size_t image, size_t images,
                             uint64_t size) -> char* {
        EXPECT_EQ(images, 2u);
        EXPECT_EQ(size, image == 0 ? first.size() : second.size());
        return image == taken ? memory.data() : nullptr;
      };
      const ImagePlaces places = place;
      const auto sample = ReadSample(
          source, 0, {.text = false, .images = true, .places = &places});
      ASSERT_TRUE(sample.ok()) << sample.status();
      EXPECT_EQ(sample->media[0].file(), first);
      EXPECT_EQ(sample->media[1].file(), second);
      EXPECT_EQ(sample->media[taken].file().data(), memory.data());
      EXPECT_EQ(sample->media[taken].bytes, "");
      EXPECT_EQ(sample->media[1 - taken].bytes, taken == 0 ? second : first);
    }
  }
  // Damage is found wherever the bytes are.
  const auto time = std::filesystem::last_write_time(folder + "/m/a.jpg");
  WriteFile(folder + "/m/a.jpg", FakeImage(2, 2, 300));
  std::filesystem::last_write_time(folder + "/m/a.jpg", time);
  std::string memory(first.size(), '?');
  const auto place = [&](size_t image, size_t, uint64_t) {
    return image == 0 ? memory.data() : nullptr;
  };
  const ImagePlaces places = place;
  const auto opened = OpenSource(lines, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(ReadSample(**opened, 0,
                       {.text = false, .images = true, .places = &places})
                .status()
                .code(),
            absl::StatusCode::kDataLoss);
}

// Who makes features of a sample's clips reads of its images what shows that
// they are the indexed ones.
TEST(ReadMediaTest, ClipsAreReadWithoutTheirImages) {
  const std::string folder = TestFolder();
  const std::string image = FakeImage(1, 2, 9000);
  const std::string clip = FakeVideo(5);
  WriteFile(folder + "/docs-0.tar", TarEntry("a.txt", "x") +
                                        TarEntry("a.jpg", image) +
                                        TarEntry("a.wav", clip) + TarEnd());
  WriteFile(folder + "/m/a.jpg", image);
  WriteFile(folder + "/m/a.wav", clip);
  WriteFile(folder + "/chat.jsonl",
            R"({"image": "m/a.jpg", "audio": "m/a.wav"})");
  const v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  for (const v1::Source& format :
       {MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar"), lines}) {
    SCOPED_TRACE(format.format());
    const auto report = BuildIndex(format, folder, FakeVideoOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->media[MediumKind::kAudio], 1u);
    const auto opened = OpenSource(format, folder, FakeKey());
    ASSERT_TRUE(opened.ok()) << opened.status();
    ReadParts parts;
    EXPECT_EQ(ReadSample(**opened, 0, parts)->media[0].bytes, image);
    parts.whole_images = false;
    const auto sample = ReadSample(**opened, 0, parts);
    ASSERT_TRUE(sample.ok()) << sample.status();
    ASSERT_EQ(Images(*sample).size(), 1u);
    EXPECT_EQ(sample->media[0].bytes, "");
    EXPECT_EQ(GetBytes(Clips(*sample)[0]), clip);
  }
  const auto time = std::filesystem::last_write_time(folder + "/m/a.jpg");
  std::string other = image;
  other[0] ^= 1;
  WriteFile(folder + "/m/a.jpg", other);
  std::filesystem::last_write_time(folder + "/m/a.jpg", time);
  const auto opened = OpenSource(lines, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  ReadParts parts;
  parts.whole_images = false;
  EXPECT_EQ(ReadSample(**opened, 0, parts).status().code(),
            absl::StatusCode::kDataLoss);
}

// A sample with audio is bad for a model without it; audio of another key
// within a sample is not its own.
TEST(ReadMediaTest, AudioThatNoModuleTakesIsNotRead) {
  const std::string folder = TestFolder();
  const std::string image = FakeImage(1, 2, 9000);
  WriteFile(folder + "/docs-0.tar",
            TarEntry("a.txt", "x") + TarEntry("a.wav", "1") +
                TarEntry("a.flac", "2") + TarEntry("a.jpg", image) +
                TarEntry("b.txt", "y") + TarEntry("other.wav", "3") +
                TarEntry("b.jpg", image) + TarEntry("c.txt", "z") +
                TarEntry("c.3.wav", "4") + TarEntry("c.jpg", image) + TarEnd());
  const v1::Source source =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar");
  const auto report = BuildIndex(source, folder, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->samples, 1u);
  EXPECT_EQ(report->bad.size(), 3u);  // a, c and other
  const auto opened = OpenSource(source, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto sample = ReadSample(**opened, 0, ReadParts());
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->text, "y");
  EXPECT_EQ(sample->media[0].bytes, image);
  EXPECT_TRUE(Clips(*sample).empty());
}

// Parts name members in the order of their numbers, or paths that are none.
TEST(ReadMediaTest, PartsMayNotNameMembersInAnotherOrder) {
  const std::string folder = TestFolder();
  std::string tar;
  const auto add = [&](absl::string_view key, absl::string_view first,
                       absl::string_view second) {
    absl::StrAppend(
        &tar,
        TarEntry(absl::StrCat(key, ".json"),
                 absl::StrCat(R"({"messages": [{"role": "user", "content": [)",
                              first, ",", second, "]}]}")));
    for (const char* end : {".0.jpg", ".1.jpg"}) {
      absl::StrAppend(&tar, TarEntry(absl::StrCat(key, end), FakeImage(1, 2)));
    }
  };
  const auto part = [](absl::string_view name) {
    return absl::StrCat(R"({"type": "image", "image": ")", name, R"("})");
  };
  const std::string mark = R"({"type": "text", "text": "<image>"})";
  add("a", part("a.0.jpg"), part("a.1.jpg"));
  add("b", part("b.1.jpg"), part("b.0.jpg"));
  add("c", part("photos/2.jpg"), part("photos/1.jpg"));
  add("d", part("d.1.jpg"), mark);
  add("e", mark, part("e.1.jpg"));
  WriteFile(folder + "/docs-0.tar", tar + TarEnd());
  const auto report =
      BuildIndex(MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar"),
                 folder, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 3u);
  std::vector<std::string> bad;
  for (const BadSample& one : report->bad) bad.push_back(one.reason);
  EXPECT_THAT(bad, ElementsAre(HasSubstr("names b.1.jpg in place 1, and image "
                                         "1 is b.0.jpg"),
                               HasSubstr("names d.1.jpg in place 1")));
}

TEST(ReadMediaTest, PartsMayNotNameVideosAndClipsInAnotherOrder) {
  const std::string folder = TestFolder();
  std::string tar;
  const auto add = [&](absl::string_view key, absl::string_view type,
                       absl::string_view first, absl::string_view second,
                       absl::string_view ending) {
    const auto part = [&](absl::string_view name) {
      return absl::StrCat(R"({"type": ")", type, R"(", ")", type, R"(": ")",
                          name, ending, R"("})");
    };
    absl::StrAppend(
        &tar,
        TarEntry(absl::StrCat(key, ".json"),
                 absl::StrCat(R"({"messages": [{"role": "user", "content": [)",
                              part(first), ",", part(second), "]}]}")));
    for (const char* number : {".0", ".1"}) {
      absl::StrAppend(
          &tar, TarEntry(absl::StrCat(key, number, ending), FakeVideo(9)));
    }
  };
  add("a", "video", "a.0", "a.1", ".mp4");
  add("b", "video", "b.1", "b.0", ".mp4");
  add("c", "video", "clips/2", "clips/1", ".mp4");
  add("d", "audio", "d.0", "d.1", ".wav");
  add("e", "audio", "e.1", "e.0", ".wav");
  WriteFile(folder + "/docs-0.tar", tar + TarEnd());
  const auto report =
      BuildIndex(MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar"),
                 folder, FakeVideoOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 3u);
  std::vector<std::string> bad;
  for (const BadSample& one : report->bad) bad.push_back(one.reason);
  EXPECT_THAT(bad, ElementsAre(HasSubstr("names b.1.mp4 in place 1, and video "
                                         "1 is b.0.mp4"),
                               HasSubstr("names e.1.wav in place 1, and audio "
                                         "1 is e.0.wav")));
}

// A clip of each video, of the same file and in the same seconds, among the
// other clips.
TEST(ReadMediaTest, VideosBringTheirAudio) {
  const std::string folder = TestFolder();
  for (const char* name : {"a", "b"}) {
    WriteFile(absl::StrCat(folder, "/m/", name, ".mp4"),
              FakeVideo(5 + name[0] - 'a'));
  }
  WriteFile(folder + "/m/c.wav", FakeVideo(9));
  WriteFile(folder + "/m/d.wav", FakeVideo(8));
  WriteFile(folder + "/m/mute.mp4", FakeVideo(3));
  WriteFile(
      folder + "/chat.jsonl",
      absl::StrJoin(
          {R"({"messages": [{"role": "user", "content": [{"type": "video", )"
           R"("video": "m/a.mp4", "start": 1, "end": 2.5}, )"
           R"({"type": "video", "video": "m/b.mp4"}]}]})",
           R"({"audio": "m/c.wav"})",
           R"({"audios": ["m/c.wav", "m/d.wav", "m/c.wav"], )"
           R"("videos": ["m/a.mp4", "m/b.mp4"]})",
           R"({"videos": [["m/a.jpg", "m/b.jpg"]]})",
           R"({"video": "m/mute.mp4"})"},
          "\n"));
  const v1::Source source = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  IndexOptions options = FakeVideoOptions();
  options.read_audio_in_video =
      [](const RawMedium& file) -> absl::StatusOr<StreamFacts> {
    if (GetBytes(file) == FakeVideo(3)) {
      return absl::InvalidArgumentError("the file has no audio stream");
    }
    return ReadFakeAudio(file);
  };
  options.find_order = [](const RawSample&, const MediaCounts& media) {
    EXPECT_EQ(media, (MediaCounts{{0, 2, 3}}));
    // The last clip is not in it, so it is after all.
    return MediaOrder{MediumKind::kAudio, MediumKind::kVideo,
                      MediumKind::kAudio, MediumKind::kVideo};
  };
  const auto report = BuildIndex(source, folder, options);
  ASSERT_TRUE(report.ok()) << report.status();
  std::vector<std::string> bad;
  for (const BadSample& one : report->bad) bad.push_back(one.reason);
  EXPECT_THAT(
      bad,
      ElementsAre(HasSubstr("video 0: a list of pictures has no audio"),
                  HasSubstr("its audio (model.video.use_audio_in_video): the "
                            "file has no audio stream")));
  const auto opened = OpenSource(source, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto indexed = (*opened)->index().sample(0);
  ASSERT_TRUE(indexed.ok()) << indexed.status();
  ASSERT_EQ(Videos(*indexed).size(), 2u);
  ASSERT_EQ(Clips(*indexed).size(), 2u);
  EXPECT_TRUE(Clips(*indexed)[0].is_in_video());
  EXPECT_EQ(Clips(*indexed)[0].start, 1);
  EXPECT_EQ(Clips(*indexed)[0].end, 2.5);
  EXPECT_EQ(Clips(*indexed)[0].frames, 5u);
  EXPECT_EQ(Clips(*indexed)[1].frames, 6u);
  const auto sample = ReadSample(**opened, 0, ReadParts());
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(Clips(*sample).size(), 2u);
  EXPECT_EQ(GetBytes(Clips(*sample)[0]), GetBytes(Videos(*sample)[0]));
  EXPECT_EQ(GetBytes(Clips(*sample)[1]), FakeVideo(6));
  // A clip alone is one.
  EXPECT_FALSE(Clips(*(*opened)->index().sample(1))[0].is_in_video());
  EXPECT_EQ(Clips(*ReadSample(**opened, 1, ReadParts())).size(), 1u);
  const auto among = (*opened)->index().sample(2);
  ASSERT_TRUE(among.ok()) << among.status();
  EXPECT_EQ(Videos(*among).size(), 2u);
  std::vector<std::pair<uint32_t, bool>> clips;
  for (const StreamFacts& clip : Clips(*among)) {
    clips.emplace_back(clip.frames, clip.is_in_video());
  }
  EXPECT_THAT(clips, ElementsAre(Pair(9, false), Pair(5, true), Pair(8, false),
                                 Pair(6, true), Pair(9, false)));
  const auto heard = ReadSample(**opened, 2, ReadParts());
  ASSERT_TRUE(heard.ok()) << heard.status();
  ASSERT_EQ(Clips(*heard).size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(GetBytes(Clips(*heard)[i]), FakeVideo(clips[i].first));
  }
}

}  // namespace
}  // namespace ballast
