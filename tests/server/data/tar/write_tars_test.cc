#include "server/data/tar/write_tars.h"

#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"
#include "tests/server/data/fake_videos.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// An image file that is a JPEG by its first bytes; the last is its number.
std::string Jpeg(int number) {
  return absl::StrCat("\xFF\xD8", std::string(100, 'x'), number);
}

class WriteTarsTest : public ::testing::Test {
 protected:
  // Lines with none, one and several images, and tokens.
  WriteTarsTest() {
    std::string lines;
    for (int i = 0; i < 11; ++i) {
      std::string images;
      for (int j = 0; j < i % 3; ++j) {
        const std::string name = absl::StrCat("m/", i, "_", j, ".jpg");
        WriteFile(absl::StrCat(folder_, "/", name), Jpeg(10 * i + j));
        absl::StrAppend(&images, j == 0 ? "" : ", ", "\"", name, "\"");
      }
      absl::StrAppend(&lines, "{\"image\": [", images, "], ",
                      i == 5 ? "\"tokens\": [1, 2]"
                             : absl::StrCat("\"conversations\": [", i, "]"),
                      "}\n");
    }
    WriteFile(folder_ + "/chat.jsonl", lines);
  }

  static IndexOptions Options() {
    IndexOptions options = FakeOptions();
    options.reuse = false;
    options.read_image_size = [](absl::string_view) {
      return absl::StatusOr<ImageSize>({7, 5});
    };
    return options;
  }

  static IndexOptions WithVideos() {
    IndexOptions options = Options();
    options.read[MediumKind::kVideo] = ReadFakeVideo;
    return options;
  }

  std::unique_ptr<FileSource> Open(const v1::Source& source,
                                   const IndexOptions& options = Options()) {
    const auto report = BuildIndex(source, folder_, options);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->bad.empty()) << report->bad[0].reason;
    auto opened = OpenSource(source, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *std::move(opened);
  }

  RepackOptions Repacking() const {
    RepackOptions options;
    options.directory = folder_ + "/tars";
    options.name = "chat";
    options.samples_per_tar = 3;
    options.threads = 2;
    return options;
  }

  // Repacks the two samples of lines_, of 1 and 2 videos, and compares them
  // with what the tars hold: text, images, and each video's number, size, clip
  // and rate. `expect` compares the videos themselves.
  void ExpectRepacked(const std::function<void(size_t, const RawSample&,
                                               const RawSample&)>& expect) {
    const auto lines = Open(lines_, WithVideos());
    const auto report = Repack(*lines, Repacking());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->media[MediumKind::kVideo], 3u);
    v1::Source tar =
        MakeSource(v1::Source::FORMAT_WEBDATASET, "tars/chat-*.tar");
    tar.set_index("index/tars.index");
    const auto tars = Open(tar, WithVideos());
    ASSERT_EQ(tars->index().size(), 2u);
    for (uint64_t i = 0; i < 2; ++i) {
      const auto before = lines->Read(i, ReadParts());
      const auto after = tars->Read(i, ReadParts());
      ASSERT_TRUE(before.ok() && before->ok() && after.ok() && after->ok())
          << i;
      EXPECT_EQ((*before)->text, (*after)->text);
      EXPECT_EQ(Images(**before), Images(**after));
      ASSERT_EQ(Videos(**after).size(), i + 1);
      expect(i, **before, **after);
      const auto known = Videos(*lines->index().sample(i));
      const auto found = Videos(*tars->index().sample(i));
      ASSERT_EQ(found.size(), known.size());
      for (size_t k = 0; k < known.size(); ++k) {
        EXPECT_EQ(std::memcmp(&known[k], &found[k], sizeof(known[k])), 0);
      }
    }
  }

  const std::string folder_ = TestFolder();
  const v1::Source lines_ = [] {
    v1::Source source = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
    source.add_media_root(".");
    return source;
  }();
};

TEST_F(WriteTarsTest, WritesVideos) {
  WriteFile(folder_ + "/a.mp4", FakeVideo(7, 3'000'000));
  WriteFile(folder_ + "/b.mp4", FakeVideo(8));
  WriteFile(folder_ + "/x.jpg", Jpeg(1));
  WriteFile(folder_ + "/chat.jsonl",
            R"({"video": "a.mp4", "conversations": []})"
            "\n"
            R"({"image": "x.jpg", "messages": [{"role": "user", "content": [
                {"type": "video", "video": "b.mp4", "start": 1, "end": 2},
                {"type": "video", "video": "a.mp4", "fps": 4}]}]})"
            "\n");
  const std::string text = ReadFile(folder_ + "/chat.jsonl");
  // An object is a line.
  WriteFile(folder_ + "/chat.jsonl",
            absl::StrReplaceAll(text, {{"\n                ", " "}}));
  ExpectRepacked([](size_t i, const RawSample& before, const RawSample& after) {
    ASSERT_EQ(Videos(before).size(), i + 1);
    for (size_t k = 0; k <= i; ++k) {
      EXPECT_EQ(GetBytes(Videos(before)[k]), GetBytes(Videos(after)[k]));
    }
  });
}

TEST_F(WriteTarsTest, RefusesVideosThatTarsDoNotHold) {
  WriteFile(folder_ + "/a.ts", "no container that tars name");
  WriteFile(folder_ + "/x.jpg", Jpeg(1));
  const auto refused = [&](const std::string& video) {
    WriteFile(
        folder_ + "/chat.jsonl",
        absl::StrCat(R"({"video": )", video, R"(, "conversations": []})"));
    IndexOptions options = Options();
    options.read[MediumKind::kVideo] = [](const RawMedium&) {
      StreamFacts facts = {};
      facts.fps = facts.frames = facts.width = facts.height = 60;
      return absl::StatusOr<StreamFacts>(facts);
    };
    EXPECT_EQ(BuildIndex(lines_, folder_, options)->media[MediumKind::kVideo],
              1u);
    const auto source = OpenSource(lines_, folder_, FakeKey());
    EXPECT_TRUE(source.ok()) << source.status();
    RepackOptions repacking = Repacking();
    repacking.directory += video.substr(2, 1);
    return std::string(Repack(**source, repacking).status().message());
  };
  EXPECT_THAT(refused(R"("a.ts")"), HasSubstr("video 0 is neither MP4"));
}

TEST_F(WriteTarsTest, WritesListsOfPictures) {
  for (int i = 0; i < 3; ++i) {
    WriteFile(absl::StrCat(folder_, "/", i, ".jpg"), Jpeg(i));
  }
  WriteFile(folder_ + "/b.mp4", FakeVideo(8));
  WriteFile(folder_ + "/x.jpg", Jpeg(1));
  WriteFile(folder_ + "/chat.jsonl",
            R"({"video": ["0.jpg", "1.jpg"], "conversations": []})"
            "\n"
            R"({"image": "x.jpg", "messages": [{"role": "user", "content": [)"
            R"({"type": "video", "video": ["2.jpg", "1.jpg", "0.jpg"],)"
            R"( "sample_fps": 4}, {"type": "video", "video": "b.mp4"}]}]})"
            "\n");
  ExpectRepacked([](size_t i, const RawSample& before, const RawSample& after) {
    EXPECT_EQ(Videos(before)[0].pictures, Videos(after)[0].pictures);
    EXPECT_EQ(Videos(after)[0].pictures.size(), i + 2);
  });
}

TEST_F(WriteTarsTest, PicturesOfVideosAreBadWhereTheModelHasNoVideos) {
  fs::create_directories(folder_ + "/tars");
  WriteTar(folder_ + "/tars/chat-0.tar",
           {{"0.0.0.jpg", Jpeg(7)},
            {"0.json", R"({"conversations": []})"},
            {"0.0.1.jpg", Jpeg(7)}});
  v1::Source tar = MakeSource(v1::Source::FORMAT_WEBDATASET, "tars/chat-*.tar");
  tar.set_index("index/tars.index");
  const auto report = BuildIndex(tar, folder_, Options());  // no videos
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 0u);
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_NE(report->bad[0].reason.find("0.0.0.jpg"), std::string::npos);
}

TEST_F(WriteTarsTest, TheTarsHaveTheSameSamples) {
  const auto lines = Open(lines_);
  ASSERT_EQ(lines->index().size(), 11);
  const auto report = Repack(*lines, Repacking());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tars, 4);
  EXPECT_EQ(report->samples, 11);
  EXPECT_EQ(report->media, (MediaCounts{{10, 0, 0}}));
  v1::Source tar = MakeSource(v1::Source::FORMAT_WEBDATASET, "tars/chat-*.tar");
  tar.set_index("index/tars.index");
  const auto tars = Open(tar);
  ASSERT_EQ(tars->index().size(), 11);
  for (uint64_t i = 0; i < 11; ++i) {
    const auto before = lines->Read(i, ReadParts());
    const auto after = tars->Read(i, ReadParts());
    ASSERT_TRUE(before.ok() && before->ok() && after.ok() && after->ok()) << i;
    EXPECT_EQ((*before)->text, (*after)->text);
    EXPECT_EQ((*before)->text_format, (*after)->text_format);
    EXPECT_EQ(Images(**before), Images(**after));
    EXPECT_EQ(Images(**before).size(), i % 3);
    EXPECT_EQ(lines->index().sample(i)->text_tokens,
              tars->index().sample(i)->text_tokens);
  }
}

TEST_F(WriteTarsTest, ShardsAndLaterRunsMakeTheSameTars) {
  const auto lines = Open(lines_);
  ASSERT_TRUE(Repack(*lines, Repacking()).ok());
  RepackOptions options = Repacking();
  options.directory = folder_ + "/shards";
  for (uint32_t number = 1; number <= 3; ++number) {
    options.shard = {number, 3};
    ASSERT_TRUE(Repack(*lines, options).ok());
  }
  // As if the run had been killed in the second tar.
  fs::remove(options.directory + "/chat-000001.tar");
  WriteFile(options.directory + "/chat-000001.tar.part", "half");
  options.shard = {1, 1};
  const auto again = Repack(*lines, options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->resumed, 3);
  EXPECT_EQ(again->samples, 3);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ + "/tars")) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(ReadFile(entry.path()), ReadFile(options.directory + "/" + name));
    ++files;
  }
  EXPECT_EQ(files, 5);  // and chat.repack.json
}

TEST_F(WriteTarsTest, RefusesADirectoryOfOtherSamples) {
  const auto lines = Open(lines_);
  RepackOptions options = Repacking();
  ASSERT_TRUE(Repack(*lines, options).ok());
  options.samples_per_tar = 4;
  const absl::Status status = Repack(*lines, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chat.repack.json"));
}

TEST_F(WriteTarsTest, NamesASampleThatChangedOrHasNoName) {
  const auto lines = Open(lines_);
  const auto time = fs::last_write_time(folder_ + "/m/4_0.jpg");
  WriteFile(folder_ + "/m/4_0.jpg", Jpeg(99999));
  fs::last_write_time(folder_ + "/m/4_0.jpg", time);
  absl::Status status = Repack(*lines, Repacking()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chat.jsonl"));
  // What is not whole has no name of its own.
  EXPECT_FALSE(fs::exists(folder_ + "/tars/chat-000001.tar"));
  WriteFile(folder_ + "/m/4_0.jpg", "GIF89a");
  status = Repack(*Open(lines_), Repacking()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds other samples"));
  RepackOptions other = Repacking();
  other.directory += "2";
  status = Repack(*Open(lines_), other).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("chat.jsonl:5: image 0 is neither JPEG"));
}

TEST(VideoExtensionTest, KnowsFiveContainers) {
  const auto box = [](const std::string& name) {
    return std::string(4, '\0') + name;
  };
  EXPECT_EQ(VideoExtension(box("ftypisom")), "mp4");
  EXPECT_EQ(VideoExtension(box("ftypqt  ")), "mov");
  EXPECT_EQ(VideoExtension(box("moov")), "mov");
  EXPECT_EQ(VideoExtension("RIFF1234AVI LIST"), "avi");
  EXPECT_EQ(VideoExtension("\x1A\x45\xDF\xA3...webm"), "webm");
  EXPECT_EQ(VideoExtension("\x1A\x45\xDF\xA3...matroska"), "mkv");
  EXPECT_EQ(VideoExtension("RIFF1234WAVE"), "");
  EXPECT_EQ(VideoExtension("FLV"), "");
  EXPECT_EQ(VideoExtension(""), "");
}

TEST(ImageExtensionTest, KnowsThreeFormats) {
  EXPECT_EQ(ImageExtension("\xFF\xD8\xFF"), "jpg");
  EXPECT_EQ(ImageExtension("\x89PNG\r\n"), "png");
  EXPECT_EQ(ImageExtension("RIFF1234WEBPVP8 "), "webp");
  EXPECT_EQ(ImageExtension("RIFF1234WAVE"), "");
  EXPECT_EQ(ImageExtension("RIFF"), "");
  EXPECT_EQ(ImageExtension(""), "");
}

}  // namespace
}  // namespace ballast
