// What an image's header and end say of JPEG engines.
#include "server/data/index/image_probe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/sample/image_header.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

absl::StatusOr<ImageSize> ReadSize(absl::string_view bytes) {
  const auto header = ReadImageHeader(bytes);
  if (!header.ok()) return header.status();
  return ImageSize{header->width, header->height};
}

// Probes a file that stands between others, as in a tar.
absl::StatusOr<ProbedImage> Probe(const std::string& image,
                                  const ImageJudge& judge = JudgeHeader) {
  const std::string path = TestFolder() + "/images";
  WriteFile(path, "before" + image + "\xff\xd9");
  const auto file = File::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return ProbeImage(*file, 6, image.size(), ReadSize, judge);
}

EngineRefusal RefusalOf(const std::string& image,
                        const ImageJudge& judge = JudgeHeader) {
  const auto probed = Probe(image, judge);
  EXPECT_TRUE(probed.ok()) << probed.status();
  EXPECT_FALSE(probed->mark.is_marked());
  return probed->mark.refusal();
}

// A copy with comments behind the frame header, which hide the scan.
std::string WithComments(const std::string& jpeg, int comments) {
  std::string added;
  for (int i = 0; i < comments; ++i) {
    added += std::string("\xff\xfe\xff\xff", 4) + std::string(65533, 'x');
  }
  std::string longer = jpeg;
  return longer.insert(jpeg.find("\xff\xda"), added);
}

TEST(ImageProbeTest, MarksWithTheLengthOfTheFile) {
  for (const MadeJpeg& made :
       {MadeJpeg{.width = 17, .height = 9},
        MadeJpeg{.width = 400, .height = 300, .quality = 95},
        MadeJpeg{.sampling = ChromaSampling::kGrey, .restart_interval = 1}}) {
    const std::string jpeg = MakeJpeg(made);
    const auto probed = Probe(jpeg);
    ASSERT_TRUE(probed.ok()) << probed.status();
    EXPECT_EQ(probed->size.width, made.width);
    EXPECT_EQ(probed->mark,
              ImageMark::Marked(static_cast<uint32_t>(jpeg.size())));
  }
}

TEST(ImageProbeTest, ReadsUpToTheScan) {
  const std::string jpeg = WithComments(MakeJpeg({}), 3);
  ASSERT_GT(jpeg.size(), 3u << 16);
  const auto probed = Probe(jpeg);
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(probed->mark.bytes(), jpeg.size());
  // A file that is cut before its scan keeps its size.
  EXPECT_EQ(RefusalOf(jpeg.substr(0, 100'000)), EngineRefusal::kEnd);
}

TEST(ImageProbeTest, RefusesWhatHeaderAndEndRuleOut) {
  const std::string jpeg = MakeJpeg({.width = 300, .height = 200});
  EXPECT_EQ(RefusalOf(jpeg.substr(0, jpeg.size() - 1)), EngineRefusal::kEnd);
  EXPECT_EQ(RefusalOf(jpeg + '\0'), EngineRefusal::kEnd);
  EXPECT_EQ(RefusalOf(MakeJpeg({.progressive = true})),
            EngineRefusal::kProcess);
  EXPECT_EQ(
      RefusalOf(jpeg,
                [](absl::string_view) {
                  return absl::StatusOr<EngineRefusal>(EngineRefusal::kTurned);
                }),
      EngineRefusal::kTurned);
}

TEST(ImageProbeTest, DecodesWhatDoesNotEndAsItsFormat) {
  const std::string path = TestFolder() + "/cut";
  for (const bool progressive : {false, true}) {
    const std::string jpeg = MakeJpeg({.width = 400,
                                       .height = 300,
                                       .quality = 95,
                                       .progressive = progressive});
    ASSERT_GT(jpeg.size(), 8000u);
    for (const uint64_t size : {jpeg.size(), jpeg.size() - 1, uint64_t{5000}}) {
      WriteFile(path, jpeg);
      const auto file = File::Open(path);
      ASSERT_TRUE(file.ok()) << file.status();
      uint64_t decoded = 0;
      const auto probed = ProbeImage(*file, 0, size, ReadSize, JudgeHeader,
                                     [&](absl::string_view image) {
                                       decoded = image.size();
                                       EXPECT_EQ(image, jpeg.substr(0, size));
                                       return absl::InvalidArgumentError("cut");
                                     });
      EXPECT_EQ(decoded, size == jpeg.size() ? 0 : size);
      EXPECT_EQ(probed.ok(), size == jpeg.size()) << probed.status();
    }
  }
}

TEST(ImageProbeTest, RefusesAFileOfMoreThanAnIndexCanHold) {
  const std::string path = TestFolder() + "/long.jpg";
  WriteFile(path, MakeJpeg({}));
  const uint64_t length = uint64_t{ImageMark::kMaxBytes} + 1;
  std::filesystem::resize_file(path, length);  // a hole: it takes no space
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto probed = ProbeImage(*file, 0, length, ReadSize, JudgeHeader);
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(probed->mark, ImageMark::Refused(EngineRefusal::kLength));
}

// "i0 v0 i1" for two images and a video between them, and "a0" for a clip.
std::string Walk(uint64_t images, const std::vector<uint32_t>& behind,
                 size_t clips = 0) {
  const std::vector<ImageSize> sizes(images);
  std::vector<StreamFacts> videos(behind.size());
  for (size_t i = 0; i < behind.size(); ++i) {
    videos[i] = {};
    videos[i].flags = StreamFacts::kIsList;
    SetImagesBehind(behind[i], &videos[i]);
    EXPECT_EQ(videos[i].flags & 0xFF, StreamFacts::kIsList);
    EXPECT_EQ(ImagesBehind(videos[i]), behind[i]);
  }
  std::string all;
  videos.resize(behind.size() + clips, {.flags = StreamFacts::kIsRows});
  for (const IndexedMedium& medium : MediaList(sizes, {}, videos)) {
    absl::StrAppend(&all, all.empty() ? "" : " ",
                    MediumName(medium.kind).substr(0, 1), medium.number);
  }
  return all;
}

TEST(MediaListTest, VideosStandBeforeTheImagesBehindThem) {
  EXPECT_EQ(Walk(0, {}), "");
  EXPECT_EQ(Walk(2, {}), "i0 i1");
  EXPECT_EQ(Walk(0, {0, 0}), "v0 v1");
  EXPECT_EQ(Walk(2, {0, 0}), "i0 i1 v0 v1");
  EXPECT_EQ(Walk(2, {2, 1, 0}), "v0 i0 v1 i1 v2");
  EXPECT_EQ(Walk(3, {3, 3, 1}), "v0 v1 i0 i1 v2 i2");
  EXPECT_EQ(Walk(2, {1}, 2), "i0 v0 i1 a0 a1");
  EXPECT_EQ(Walk(0, {}, 2), "a0 a1");
}

// Whatever a damaged index says, each is walked once.
TEST(MediaListTest, NumbersThatCannotBe) {
  EXPECT_EQ(Walk(2, {9}), "v0 i0 i1");
  EXPECT_EQ(Walk(2, {0, 2}), "i0 i1 v0 v1");
}

TEST(MediaListTest, SettingReplaces) {
  StreamFacts video = {};
  video.flags = StreamFacts::kHasStart | StreamFacts::kHasEnd;
  SetImagesBehind(10'000, &video);
  EXPECT_EQ(ImagesBehind(video), 10'000u);
  SetImagesBehind(0, &video);
  EXPECT_EQ(video.flags, StreamFacts::kHasStart | StreamFacts::kHasEnd);
}

}  // namespace
}  // namespace ballast
