// What an index holds of images for JPEG engines: marks, content hashes, their
// counts and digests.

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_file.h"
#include "server/corpus/index/index_writer.h"
#include "server/corpus/index/source_index.h"
#include "tests/fakes/old_index.h"
#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;

constexpr ImageMark kClean = ImageMark::Marked(700, ImageCheckResult::kClean);
constexpr ImageMark kUnsound =
    ImageMark::Marked(800, ImageCheckResult::kUnsound);
constexpr ImageMark kChanged =
    ImageMark::Marked(850, ImageCheckResult::kChanged);
constexpr ImageMark kUnchecked = ImageMark::Marked(900);
constexpr ImageMark kRefused = ImageMark::Refused(EngineRefusal::kProcess);

// Two samples with 3 and 2 images, and one that is left out, with 1.
IndexContents Contents() {
  IndexContents contents;
  contents.format = 1;
  contents.files = {{"a.tar", {1000, 5}, 0}};
  for (const uint32_t images : {3, 2, 1}) {
    IndexSampleRecord sample = {};
    sample.first_image = contents.images.size();
    sample.num_images = images & 3;
    contents.images.resize(contents.images.size() + images, {10, 20});
    (images == 1 ? contents.left_out : contents.samples).push_back(sample);
  }
  contents.marks = {kClean, kRefused, kUnchecked, kUnsound, kChanged, kClean};
  contents.content_hashes = {11, 12, 13, 14, 15, 16};
  return contents;
}

std::shared_ptr<const IndexFile> Written(
    const IndexContents& contents, EncodedRule rule = EncodedRule::kNone) {
  const std::string path = TestFolder() + "/a.index";
  EXPECT_TRUE(WriteIndex(path, contents).ok());
  auto index = IndexFile::Open(path, rule);
  EXPECT_TRUE(index.ok()) << index.status();
  return *index;
}

TEST(ImageMarkTest, TheRuleAndTheCheckSayWhatTravelsEncoded) {
  struct Case {
    ImageMark mark;
    uint32_t none, checked, unchecked;
  };
  for (const Case& each : {Case{kClean, 0, 700, 700},
                           {kUnsound, 0, 0, 0},
                           {kChanged, 0, 0, 0},
                           {kUnchecked, 0, 0, 900},
                           {kRefused, 0, 0, 0},
                           {ImageMark(), 0, 0, 0}}) {
    EXPECT_EQ(EncodedBytes(each.mark, EncodedRule::kNone), each.none);
    EXPECT_EQ(EncodedBytes(each.mark, EncodedRule::kChecked), each.checked);
    EXPECT_EQ(EncodedBytes(each.mark, EncodedRule::kUnchecked), each.unchecked);
  }
}

TEST(ImageMarkTest, HoldsTheLongestFileAndEveryRefusal) {
  const ImageMark longest =
      ImageMark::Marked(ImageMark::kMaxBytes, ImageCheckResult::kChanged);
  EXPECT_EQ(longest.bytes(), 0x3ffffff);
  EXPECT_EQ(longest.check(), ImageCheckResult::kChanged);
  EXPECT_EQ(longest.refusal(), EngineRefusal::kNone);
  for (int i = 1; i < kEngineRefusals; ++i) {
    const ImageMark mark = ImageMark::Refused(static_cast<EngineRefusal>(i));
    EXPECT_EQ(static_cast<int>(mark.refusal()), i);
    EXPECT_FALSE(mark.is_marked());
    EXPECT_NE(EngineRefusalText(mark.refusal()), "unknown");
  }
}

TEST(IndexMarksTest, ReturnsMarksAndHashesByTheRule) {
  // The server compares the hashes of what it decodes, too.
  const auto host = Written(Contents());
  EXPECT_EQ(host->sample(0)->marks.size(), 3);
  EXPECT_EQ(host->sample(0)->encoded_bytes(0), 0);
  EXPECT_THAT(*host->content_hashes(0), ElementsAre(11, 0, 0));

  const auto index = Written(Contents(), EncodedRule::kChecked);
  ASSERT_TRUE(index->Verify(nullptr).ok());
  EXPECT_THAT(index->sample(0)->marks,
              ElementsAre(kClean, kRefused, kUnchecked));
  EXPECT_EQ(index->sample(0)->encoded_bytes(0), 700);
  EXPECT_EQ(index->sample(0)->encoded_bytes(2), 0);
  EXPECT_THAT(index->sample(1)->marks, ElementsAre(kUnsound, kChanged));
  // Those of images that are not clean are not kept.
  EXPECT_THAT(*index->content_hashes(0), ElementsAre(11, 0, 0));
  EXPECT_THAT(*index->content_hashes(1), ElementsAre(0, 0));
  EXPECT_THAT(index->hashes(2), ElementsAre(16));

  const auto unchecked = Written(Contents(), EncodedRule::kUnchecked);
  EXPECT_EQ(unchecked->sample(0)->encoded_bytes(2), 900);
  EXPECT_EQ(unchecked->sample(1)->encoded_bytes(0), 0);
}

TEST(IndexMarksTest, CountsTheMarksOfSamples) {
  const ImageMarkCounts counts = Written(Contents())->mark_counts();
  EXPECT_EQ(counts.images, 5);
  EXPECT_EQ(counts.marked(), 4);
  EXPECT_THAT(counts.checks, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(counts.refusals[static_cast<int>(EngineRefusal::kProcess)], 1);
  EXPECT_FALSE(counts.checked());
  IndexContents contents = Contents();
  contents.marks[2] = kClean;
  EXPECT_TRUE(Written(contents)->mark_counts().checked());
  contents.marks.clear();
  const ImageMarkCounts unmarked = Written(contents)->mark_counts();
  EXPECT_EQ(unmarked.images, 5);
  EXPECT_EQ(unmarked.refusals[0], 5);
}

TEST(IndexMarksTest, KeepsNoHashesWhereNoImageIsClean) {
  IndexContents contents = Contents();
  contents.marks[0] = kUnchecked;
  contents.marks[5] = kUnchecked;
  const auto index = Written(contents, EncodedRule::kUnchecked);
  EXPECT_TRUE(index->content_hashes(0)->empty());
  const auto host = Written(contents);
  EXPECT_TRUE(host->sample(0)->marks.empty());
  EXPECT_EQ(host->encoded_digest(), "");
  const std::string bytes = ReadFile(index->path());
  contents.content_hashes.clear();
  EXPECT_EQ(ReadFile(Written(contents)->path()), bytes);
}

TEST(IndexMarksTest, TheEncodedDigestCoversLengthsAndHashes) {
  // Encoded bytes, then both halves of the hash if not 0, low half first.
  const auto digest = [](std::vector<uint32_t> numbers) {
    const Digest wanted = ComputeDigest(absl::string_view(
        reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size()));
    return absl::StrFormat("%016x%016x", wanted[0], wanted[1]);
  };
  EXPECT_EQ(Written(Contents(), EncodedRule::kChecked)->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Written(Contents())->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Written(Contents(), EncodedRule::kUnchecked)->encoded_digest(),
            digest({700, 11, 0, 0, 900, 0, 0, 0, 0}));
  // What is not encoded does not count; neither do the samples left out.
  IndexContents contents = Contents();
  contents.marks[1] = ImageMark::Refused(EngineRefusal::kSize);
  contents.marks[3] = kChanged;
  contents.marks[5] = kRefused;
  EXPECT_EQ(Written(contents, EncodedRule::kChecked)->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  // Marks and checks leave the digest of the data as it is.
  contents.marks.clear();
  EXPECT_EQ(Written(contents)->digest(), Written(Contents())->digest());
}

// Hashes of all images and videos, whatever their marks.
TEST(IndexHashesTest, ReturnsAllHashes) {
  IndexContents contents = Contents();
  contents.is_hashed = true;
  IndexedVideo video = {};
  video.frames = video.width = video.height = 1;
  contents.videos = {video, video, video};
  contents.video_records = {1, 1, 2};
  contents.video_hashes = {21, 22, 23};
  const auto index = Written(contents);
  ASSERT_TRUE(index->Verify(nullptr).ok());
  EXPECT_TRUE(index->is_hashed());
  EXPECT_THAT(*index->content_hashes(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(*index->content_hashes(1), ElementsAre(14, 15));
  EXPECT_TRUE(index->video_hashes(0)->empty());
  EXPECT_THAT(*index->video_hashes(1), ElementsAre(21, 22));
  EXPECT_THAT(*index->hashes_of_videos(2), ElementsAre(23));
  // Servers that compare all hashes agree with no others, and with none that
  // has other ones; those of samples left out do not count.
  const std::string digest = index->encoded_digest();
  contents.video_hashes[2] = 99;
  EXPECT_EQ(Written(contents)->encoded_digest(), digest);
  contents.video_hashes[1] = 99;
  EXPECT_NE(Written(contents)->encoded_digest(), digest);
  contents.video_hashes[1] = 22;
  contents.content_hashes[3] = 99;
  EXPECT_NE(Written(contents)->encoded_digest(), digest);
  contents.is_hashed = false;
  const auto plain = Written(contents);
  EXPECT_FALSE(plain->is_hashed());
  EXPECT_TRUE(plain->video_hashes(1)->empty());
  EXPECT_NE(plain->encoded_digest(), digest);
  // The data are the same.
  EXPECT_EQ(plain->digest(), index->digest());
  // Hashes of some alone are not written.
  contents.is_hashed = true;
  contents.video_hashes.pop_back();
  EXPECT_EQ(WriteIndex(TestFolder() + "/b.index", contents).code(),
            absl::StatusCode::kInternal);
}

TEST(IndexMarksTest, AnOlderIndexIsOnlyReused) {
  IndexContents contents = Contents();
  contents.files[0].media_time_ns = 77;
  EXPECT_EQ(Written(contents)->media_time_ns(0), 77);
  const std::string path = Written(contents)->path();
  WriteFile(path, OldIndexOf(ReadFile(path)));
  const absl::Status status = IndexFile::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), path +
                                  ": index of version 6, wanted 7: an "
                                  "earlier version of this program wrote it");
  const auto old = IndexFile::OpenToReuse(path);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_TRUE((*old)->Verify(nullptr).ok());
  EXPECT_FALSE((*old)->HasMarks());
  EXPECT_FALSE((*old)->is_hashed());
  EXPECT_EQ((*old)->media_time_ns(0), 0);
  EXPECT_EQ((*old)->file_name(0), "a.tar");
  EXPECT_EQ((*old)->sample(1)->images.size(), 2);
  EXPECT_TRUE(Written(Contents())->HasMarks());
}

}  // namespace
}  // namespace ballast
