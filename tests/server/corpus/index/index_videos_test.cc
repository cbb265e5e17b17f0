// What an index holds of videos.

#include <cstdint>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/index/index_writer.h"

namespace ballast {
namespace {

IndexedVideo Video(uint32_t frames) {
  IndexedVideo video = {};
  video.fps = 29.97;
  video.start = 1.5;
  video.flags = IndexedVideo::kHasStart;
  video.frames = frames;
  video.width = 640;
  video.height = 360;
  std::strcpy(video.codec, "h264");
  return video;
}

// Three samples with 0, 2 and 0 videos and an image each, and one that is left
// out, with 1.
IndexContents Contents() {
  IndexContents contents;
  contents.format = 1;
  contents.files = {{"a.tar", {1000, 5}, 0}};
  for (uint64_t i = 0; i < 4; ++i) {
    IndexSampleRecord sample = {};
    sample.first_image = i;
    sample.num_images = 1;
    (i == 3 ? contents.left_out : contents.samples).push_back(sample);
  }
  contents.images.resize(4, {10, 20});
  contents.videos = {Video(100), Video(200), Video(300)};
  contents.video_records = {1, 1, 3};
  return contents;
}

std::shared_ptr<const IndexFile> Written(const IndexContents& contents) {
  const std::string path = ::testing::TempDir() + "/a.index";
  EXPECT_TRUE(WriteIndex(path, contents).ok());
  auto index = IndexFile::Open(path);
  EXPECT_TRUE(index.ok()) << index.status();
  return *index;
}

TEST(IndexVideosTest, HoldsTheVideosOfEachSample) {
  const auto index = Written(Contents());
  EXPECT_TRUE(index->Verify(nullptr).ok()) << index->Verify(nullptr);
  EXPECT_EQ(index->num_videos(), 2u);
  EXPECT_TRUE(index->sample(0)->videos.empty());
  EXPECT_TRUE(index->sample(2)->videos.empty());
  const auto sample = index->sample(1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(sample->videos.size(), 2u);
  EXPECT_EQ(sample->images.size(), 1u);
  const IndexedVideo wanted = Video(200);
  EXPECT_EQ(std::memcmp(&sample->videos[1], &wanted, sizeof(wanted)), 0);
  const auto left_out = index->videos(3);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  ASSERT_EQ(left_out->size(), 1u);
  EXPECT_EQ(left_out->front().frames, 300u);
}

TEST(IndexVideosTest, TheDigestCoversTheVideosOfSamples) {
  const std::string with = Written(Contents())->digest();
  IndexContents other = Contents();
  other.videos[1].fps = 30;
  EXPECT_NE(Written(other)->digest(), with);
  other = Contents();
  other.video_records = {0, 1, 3};
  EXPECT_NE(Written(other)->digest(), with);
  // That of a sample left out is not data.
  other = Contents();
  other.videos[2].frames = 1;
  EXPECT_EQ(Written(other)->digest(), with);
  // Without videos of samples it is that of a source without any.
  other.videos = {Video(5)};
  other.video_records = {3};
  IndexContents none = Contents();
  none.videos.clear();
  none.video_records.clear();
  EXPECT_EQ(Written(other)->digest(), Written(none)->digest());
  EXPECT_EQ(Written(none)->num_videos(), 0u);
}

TEST(IndexVideosTest, ReportsAVideoThatCannotBe) {
  IndexContents contents = Contents();
  contents.videos[0].frames = 0;
  const auto index = Written(contents);
  EXPECT_TRUE(index->sample(0).ok());
  EXPECT_THAT(std::string(index->sample(1).status().message()),
              ::testing::HasSubstr("a video of sample 1 has no frames"));
}

}  // namespace
}  // namespace ballast
