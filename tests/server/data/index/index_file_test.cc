#include "server/data/index/index_file.h"

#include <xxhash.h>

#include <cstring>
#include <random>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_writer.h"
#include "tests/fakes/old_index.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

// Length of the file of image `i` if it may travel encoded.
uint32_t EncodedOf(const absl::StatusOr<IndexedSample>& sample, size_t i) {
  return sample->encoded_bytes(sample->media.of(MediumKind::kImage)[i]);
}

// Three samples in two files, with 2, 0 and 1 images.
IndexContents Contents() {
  IndexContents contents;
  contents.format = 1;
  contents.digests = {{3, 4}, {5, 6}, {7, 8}};
  contents.files = {{"a.tar", {1000, 5}, 7}, {"sub/b.tar", {2000, -6}, 0}};
  IndexSampleRecord sample = {};
  sample.length = 500;
  sample.num_images = 2;
  sample.text_tokens = 100;
  sample.label_tokens = 10;
  contents.samples.push_back(sample);
  sample.offset = 500;
  sample.first_image = 2;
  sample.num_images = 0;
  sample.text_tokens = 200;
  contents.samples.push_back(sample);
  sample.file = 1;
  sample.num_images = 1;
  contents.samples.push_back(sample);
  // A sample that is left out, with one image.
  sample = {};
  sample.length = 100;
  sample.offset = 600;
  sample.first_image = 3;
  sample.num_images = 1;
  contents.left_out.push_back(sample);
  contents.images = {{640, 480}, {1, 2}, {30, 40}, {50, 60}};
  return contents;
}

// Opens the index, reads everything that it allows to be read, then verifies
// the whole.
absl::Status ReadAll(const std::string& path) {
  const auto index = IndexFile::Open(path);
  if (!index.ok()) return index.status();
  uint64_t sum = 0;
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < (*index)->num_records(); ++i) all.push_back(i);
  (*index)->Prefetch(all);
  for (const uint64_t i : all) {
    if (!(*index)->Touch(i).ok()) continue;
    for (const ImageSize& image : (*index)->images(i)) sum += image.width;
    sum += (*index)->file_name((*index)->record(i).file).size();
  }
  for (uint64_t i = 0; i < (*index)->num_files(); ++i) {
    sum += (*index)->file_name(i).size();
  }
  volatile uint64_t kept = sum;  // so that every byte is read
  static_cast<void>(kept);
  return (*index)->Verify(nullptr);
}

// ReadAll of `bytes` with corrected checksums, so that only the checks of the
// records protect the reader.
absl::Status ReadSealed(const std::string& path, std::string bytes) {
  SealIndex(&bytes);
  WriteFile(path, bytes);
  return ReadAll(path);
}

IndexHeader GetHeader(absl::string_view bytes) {
  IndexHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

TEST(IndexFileTest, ReturnsTheWrittenContents) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, Contents()).ok());
  const auto opened = IndexFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const IndexFile& index = **opened;
  ASSERT_EQ(index.size(), 3);
  EXPECT_EQ(index.format(), 1);
  EXPECT_EQ(index.digests(), (IndexDigests{{3, 4}, {5, 6}, {7, 8}}));
  EXPECT_EQ(index.sample(0)->text_tokens, 100);
  EXPECT_EQ(index.sample(0)->label_tokens, 10);
  ASSERT_EQ(index.sample(0)->media.images().size(), 2);
  EXPECT_EQ(index.sample(0)->media.images()[1].height, 2);
  EXPECT_TRUE(index.sample(1)->media.images().empty());
  ASSERT_EQ(index.sample(2)->media.images().size(), 1);
  EXPECT_EQ(index.sample(2)->media.images()[0].width, 30);
  ASSERT_TRUE(index.Verify(nullptr).ok());
  EXPECT_EQ(index.record(1).offset, 500);
  EXPECT_EQ(index.num_files(), 2);
  EXPECT_EQ(index.file_name(1), "sub/b.tar");
  EXPECT_EQ(index.file_stamp(1), (FileStamp{2000, -6}));
  EXPECT_EQ(index.file_unreadable(0), 7);
  // A record that is left out is no sample.
  ASSERT_EQ(index.num_records(), 4);
  EXPECT_EQ(index.record(3).offset, 600);
  ASSERT_EQ(index.images(3).size(), 1);
  EXPECT_EQ(index.images(3)[0].height, 60);
  // The head, the records and one checksum, each starting at a page.
  EXPECT_EQ(ReadFile(path).size(), 4096 + 4096 + 8);
}

TEST(IndexFileTest, AcceptsAnEmptyIndex) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, IndexContents()).ok());
  const auto index = IndexFile::Open(path);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->size(), 0);
  // XXH3-128 of nothing, from xxHash's own test vectors.
  EXPECT_EQ((*index)->digest(), "99aa06d3014798d86001c324468d497f");
}

TEST(IndexFileTest, TheDigestCoversOnlyLengthsSizesAndContent) {
  const std::string path = TestFolder() + "/a.index";
  const auto digest = [&](const IndexContents& contents) {
    EXPECT_TRUE(WriteIndex(path, contents).ok());
    const auto index = IndexFile::Open(path);
    EXPECT_TRUE(index.ok()) << index.status();
    return (*index)->digest();
  };
  const std::string original = digest(Contents());
  // Lengths and number of images; low and high half of both checks; sizes.
  const uint32_t numbers[] = {100, 10, 2, 0, 0, 0, 0, 640, 480, 1, 2,  //
                              200, 10, 0, 0, 0, 0, 0,                  //
                              200, 10, 1, 0, 0, 0, 0, 30,  40};
  const Digest wanted = ComputeDigest(absl::string_view(
      reinterpret_cast<const char*>(numbers), sizeof(numbers)));
  EXPECT_EQ(original, absl::StrFormat("%016x%016x", wanted[0], wanted[1]));
  IndexContents contents = Contents();
  contents.files[0] = {"moved/a.tar", {9000, 7}, 1};
  contents.digests = {{8, 8}, {9, 9}, {1, 1}};
  contents.samples[1].limited = 1;
  contents.left_out[0].offset = 99;
  contents.samples[1].offset = 700;
  contents.samples[1].length = 7;
  EXPECT_EQ(digest(contents), original);
  for (int change = 0; change < 6; ++change) {
    contents = Contents();
    if (change == 0) ++contents.samples[2].text_tokens;
    if (change == 1) ++contents.samples[2].label_tokens;
    if (change == 2)
      std::swap(contents.images[0].width, contents.images[0].height);
    if (change == 4) contents.samples[1].text_check = 99;
    if (change == 5) contents.samples[0].image_check = 99;
    if (change == 3) {  // the second image moves to the second sample
      contents.samples[0].num_images = 1;
      contents.samples[1].num_images = 1;
      contents.samples[1].first_image = 1;
      contents.samples[2].first_image = 2;
    }
    EXPECT_NE(digest(contents), original) << change;
  }
}

TEST(IndexFileTest, RefusesRecordsOutOfBounds) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, Contents()).ok());
  const std::string bytes = ReadFile(path);
  // Returns why an index with `value` in a record's field is refused.
  const auto reason = [&](uint64_t table, size_t record_bytes, size_t record,
                          size_t field, auto value) {
    std::string damaged = bytes;
    std::memcpy(damaged.data() + table + record * record_bytes + field, &value,
                sizeof(value));
    const absl::Status status = ReadSealed(path, damaged);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  const uint64_t samples = GetHeader(bytes).sample_table;
  const uint64_t images = samples + 4 * sizeof(IndexSampleRecord);
  const auto sample = [&](size_t record, size_t field, auto value) {
    return reason(samples, sizeof(IndexSampleRecord), record, field, value);
  };
  const std::string damaged = path + ": damaged index: ";
  EXPECT_EQ(sample(2, offsetof(IndexSampleRecord, file), uint32_t{2}),
            damaged + "sample 2 in file 2 of 2");
  EXPECT_EQ(sample(1, offsetof(IndexSampleRecord, length), uint64_t{501}),
            damaged + "sample 1 lies outside its file");
  EXPECT_EQ(sample(1, offsetof(IndexSampleRecord, offset), UINT64_MAX),
            damaged + "sample 1 lies outside its file");
  const size_t num_images = offsetof(IndexSampleRecord, text_tokens) - 4;
  EXPECT_EQ(sample(2, num_images, uint32_t{3}),
            damaged + "sample 2 has images 2 and 3 more, of 4");
  EXPECT_EQ(
      sample(2, offsetof(IndexSampleRecord, image_check) + 8, uint64_t{0}),
      damaged + "sample 2 has images from 0, wanted from 2");
  EXPECT_EQ(sample(3, num_images, uint32_t{0}),
            damaged + "4 images, its samples have 3");
  EXPECT_EQ(sample(0, offsetof(IndexSampleRecord, file), uint32_t{1}),
            damaged + "sample 1 stands after one that lies behind it");
  EXPECT_EQ(reason(images, sizeof(ImageSize), 1, offsetof(ImageSize, height),
                   uint32_t{0}),
            damaged + "an image of sample 0 has a side of 0");
  EXPECT_EQ(reason(kIndexHeaderBytes, sizeof(IndexFileRecord), 1,
                   offsetof(IndexFileRecord, name_bytes), uint64_t{4096}),
            damaged + "file 1 has its name outside");
  for (size_t field = offsetof(IndexHeader, num_files);
       field <= offsetof(IndexHeader, page_checksums); field += 8) {
    EXPECT_EQ(reason(0, 0, 0, field, UINT64_MAX),
              damaged + "its tables do not lie one after another")
        << field;
  }
}

TEST(IndexFileTest, KeepsAndChecksGroups) {
  const std::string path = TestFolder() + "/a.index";
  const auto open = [&](std::vector<uint64_t> starts) {
    IndexContents contents = Contents();
    contents.group_starts = std::move(starts);
    EXPECT_TRUE(WriteIndex(path, contents).ok());
    return IndexFile::Open(path);
  };
  const auto none = open({});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE((*none)->group_starts().empty());
  const auto two = open({0, 2});
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ((*two)->group_starts().size(), 2u);
  EXPECT_EQ((*two)->group_starts()[1], 2u);
  EXPECT_TRUE((*two)->Verify(nullptr).ok());
  // The order of samples follows from their groups.
  EXPECT_NE((*none)->digest(), (*two)->digest());
  EXPECT_NE((*open({0, 1}))->digest(), (*two)->digest());
  for (const std::vector<uint64_t>& starts :
       {std::vector<uint64_t>{1}, {0, 0}, {0, 2, 1}, {0, 3}, {0, 1, 2, 3}}) {
    EXPECT_EQ(open(starts).status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(IndexFileTest, RefusesOtherFilesAndVersions) {
  const std::string path = TestFolder() + "/a.index";
  EXPECT_EQ(IndexFile::Open(path).status().code(), absl::StatusCode::kNotFound);
  for (const size_t size : {0, 1, 15, 16, 183, 184, 5000}) {
    WriteFile(path, std::string(size, 'x'));
    EXPECT_EQ(IndexFile::Open(path).status().code(),
              absl::StatusCode::kDataLoss);
  }
  ASSERT_TRUE(WriteIndex(path, Contents()).ok());
  std::string bytes = ReadFile(path);
  bytes[offsetof(IndexHeader, version)] = 77;
  WriteFile(path, bytes);
  const absl::Status status = IndexFile::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      status.message(),
      path +
          ": index of version 77, wanted 8: a later version of this program "
          "wrote it");
}

TEST(IndexFileTest, FindsEveryFlippedBitAndEveryCut) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, Contents()).ok());
  const std::string bytes = ReadFile(path);
  for (size_t i = 0; i < bytes.size(); ++i) {
    // Tests only some of the zeros that fill a page.
    if (bytes[i] == '\0' && bytes[i - 1] == '\0' && i % 31 != 0) continue;
    std::string damaged = bytes;
    damaged[i] ^= static_cast<char>(1 << i % 8);
    WriteFile(path, damaged);
    EXPECT_FALSE(ReadAll(path).ok()) << i;
    WriteFile(path, bytes.substr(0, i));
    EXPECT_FALSE(IndexFile::Open(path).ok()) << i;
  }
  WriteFile(path, bytes + "x");
  EXPECT_FALSE(IndexFile::Open(path).ok());
}

TEST(IndexFileTest, SurvivesHostileBytesWithRightChecksums) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, Contents()).ok());
  const std::string bytes = ReadFile(path);
  std::mt19937 random(11);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = bytes;
    // Damages bytes of the header, of files, or of records.
    const size_t start = std::vector<size_t>{0, 184, 4096}[round % 3];
    const size_t length = std::vector<size_t>{184, 200, 280}[round % 3];
    for (int flip = 0; flip < 1 + round % 4; ++flip) {
      damaged[start + random() % length] =
          static_cast<char>(round % 2 == 0 ? 0xff : random());
    }
    if (round % 5 == 0) damaged.resize(random() % damaged.size());
    ReadSealed(path, damaged).IgnoreError();
  }
}

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  return bytes;
}

std::vector<uint64_t> ChecksumsOf(const std::string& bytes) {
  std::vector<uint64_t> checksums;
  for (size_t at = 0; at < bytes.size(); at += 4096) {
    const std::string page = bytes.substr(at, 4096);
    checksums.push_back(XXH3_64bits(page.data(), page.size()));
  }
  return checksums;
}

TEST(PageChecksumsTest, CutsPiecesIntoPages) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, 8192, 20'000}) {
    const std::string bytes = Bytes(size);
    const absl::string_view whole = bytes;
    EXPECT_EQ(PageChecksums({whole}), ChecksumsOf(bytes)) << size;
    std::vector<absl::string_view> pieces;
    for (size_t at = 0, n = 0; at < size; at += n) {
      n = 1 + at * 7 % 5000;
      pieces.push_back(whole.substr(at, n));
      pieces.push_back("");
    }
    EXPECT_EQ(PageChecksums(pieces), ChecksumsOf(bytes)) << size;
  }
}

TEST(CheckedPagesTest, ChecksEachPageWhenItIsTouched) {
  std::string bytes = Bytes(3 * 4096 + 10);
  const std::vector<uint64_t> checksums = ChecksumsOf(bytes);
  bytes[4096 + 5] ^= 1;
  const CheckedPages pages(bytes, checksums);
  EXPECT_TRUE(pages.IsChecked(0, 0));
  EXPECT_FALSE(pages.IsChecked(0, 1));
  EXPECT_EQ(pages.Check(0, 0), std::nullopt);
  EXPECT_EQ(pages.Check(10, 4086), std::nullopt);
  EXPECT_TRUE(pages.IsChecked(0, 4096));
  EXPECT_FALSE(pages.IsChecked(4095, 2));
  EXPECT_EQ(pages.num_checked(), 1);
  // The pages before it are checked nevertheless, and it stays damaged.
  EXPECT_EQ(pages.Check(0, bytes.size()), 1);
  EXPECT_EQ(pages.Check(4095, 2), 1);
  EXPECT_FALSE(pages.IsChecked(4096, 1));
  EXPECT_EQ(pages.Check(2 * 4096, 4096 + 10), std::nullopt);
  EXPECT_EQ(pages.num_checked(), 3);
}

// What an index holds of images for JPEG engines: marks, content hashes, their
// counts and digests.

using ::testing::ElementsAre;

constexpr ImageMark kClean = ImageMark::Marked(700, ImageCheckResult::kClean);
constexpr ImageMark kUnsound =
    ImageMark::Marked(800, ImageCheckResult::kUnsound);
constexpr ImageMark kChanged =
    ImageMark::Marked(850, ImageCheckResult::kChanged);
constexpr ImageMark kUnchecked = ImageMark::Marked(900);
constexpr ImageMark kRefused = ImageMark::Refused(EngineRefusal::kProcess);

// Two samples with 3 and 2 images, and one that is left out, with 1.
IndexContents MarkedContents() {
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
  const auto host = Written(MarkedContents());
  EXPECT_EQ(host->sample(0)->media.marks().size(), 3);
  EXPECT_EQ(EncodedOf(host->sample(0), 0), 0);
  EXPECT_THAT(host->media_hashes(0)->images, ElementsAre(11, 0, 0));

  const auto index = Written(MarkedContents(), EncodedRule::kChecked);
  ASSERT_TRUE(index->Verify(nullptr).ok());
  EXPECT_THAT(index->sample(0)->media.marks(),
              ElementsAre(kClean, kRefused, kUnchecked));
  EXPECT_EQ(EncodedOf(index->sample(0), 0), 700);
  EXPECT_EQ(EncodedOf(index->sample(0), 2), 0);
  EXPECT_THAT(index->sample(1)->media.marks(), ElementsAre(kUnsound, kChanged));
  // Those of images that are not clean are not kept.
  EXPECT_THAT(index->media_hashes(0)->images, ElementsAre(11, 0, 0));
  EXPECT_THAT(index->media_hashes(1)->images, ElementsAre(0, 0));
  EXPECT_THAT(index->hashes(2), ElementsAre(16));

  const auto unchecked = Written(MarkedContents(), EncodedRule::kUnchecked);
  EXPECT_EQ(EncodedOf(unchecked->sample(0), 2), 900);
  EXPECT_EQ(EncodedOf(unchecked->sample(1), 0), 0);
}

TEST(IndexMarksTest, CountsTheMarksOfSamples) {
  const ImageMarkCounts counts = Written(MarkedContents())->mark_counts();
  EXPECT_EQ(counts.images, 5);
  EXPECT_EQ(counts.marked(), 4);
  EXPECT_THAT(counts.checks, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(counts.refusals[static_cast<int>(EngineRefusal::kProcess)], 1);
  EXPECT_FALSE(counts.checked());
  IndexContents contents = MarkedContents();
  contents.marks[2] = kClean;
  EXPECT_TRUE(Written(contents)->mark_counts().checked());
  contents.marks.clear();
  const ImageMarkCounts unmarked = Written(contents)->mark_counts();
  EXPECT_EQ(unmarked.images, 5);
  EXPECT_EQ(unmarked.refusals[0], 5);
}

TEST(IndexMarksTest, KeepsNoHashesWhereNoImageIsClean) {
  IndexContents contents = MarkedContents();
  contents.marks[0] = kUnchecked;
  contents.marks[5] = kUnchecked;
  const auto index = Written(contents, EncodedRule::kUnchecked);
  EXPECT_TRUE(index->media_hashes(0)->images.empty());
  const auto host = Written(contents);
  EXPECT_TRUE(host->sample(0)->media.marks().empty());
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
  EXPECT_EQ(Written(MarkedContents(), EncodedRule::kChecked)->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Written(MarkedContents())->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  EXPECT_EQ(
      Written(MarkedContents(), EncodedRule::kUnchecked)->encoded_digest(),
      digest({700, 11, 0, 0, 900, 0, 0, 0, 0}));
  // What is not encoded does not count; neither do the samples left out.
  IndexContents contents = MarkedContents();
  contents.marks[1] = ImageMark::Refused(EngineRefusal::kSize);
  contents.marks[3] = kChanged;
  contents.marks[5] = kRefused;
  EXPECT_EQ(Written(contents, EncodedRule::kChecked)->encoded_digest(),
            digest({700, 11, 0, 0, 0, 0, 0}));
  // Marks and checks leave the digest of the data as it is.
  contents.marks.clear();
  EXPECT_EQ(Written(contents)->digest(), Written(MarkedContents())->digest());
}

// Hashes of all images and videos, whatever their marks.
TEST(IndexHashesTest, ReturnsAllHashes) {
  IndexContents contents = MarkedContents();
  contents.is_hashed = true;
  StreamFacts video = {};
  video.frames = video.width = video.height = 1;
  contents.streams = {video, video, video};
  contents.stream_records = {1, 1, 2};
  contents.stream_hashes = {21, 22, 23};
  const auto index = Written(contents);
  ASSERT_TRUE(index->Verify(nullptr).ok());
  EXPECT_TRUE(index->is_hashed());
  EXPECT_THAT(index->media_hashes(0)->images, ElementsAre(11, 12, 13));
  EXPECT_THAT(index->media_hashes(1)->images, ElementsAre(14, 15));
  EXPECT_TRUE(index->media_hashes(0)->streams.empty());
  EXPECT_THAT(index->media_hashes(1)->streams, ElementsAre(21, 22));
  EXPECT_THAT(*index->stream_hashes(2), ElementsAre(23));
  // Servers that compare all hashes agree with no others, and with none that
  // has other ones; those of samples left out do not count.
  const std::string digest = index->encoded_digest();
  contents.stream_hashes[2] = 99;
  EXPECT_EQ(Written(contents)->encoded_digest(), digest);
  contents.stream_hashes[1] = 99;
  EXPECT_NE(Written(contents)->encoded_digest(), digest);
  contents.stream_hashes[1] = 22;
  contents.content_hashes[3] = 99;
  EXPECT_NE(Written(contents)->encoded_digest(), digest);
  contents.is_hashed = false;
  const auto plain = Written(contents);
  EXPECT_FALSE(plain->is_hashed());
  EXPECT_TRUE(plain->media_hashes(1)->streams.empty());
  EXPECT_NE(plain->encoded_digest(), digest);
  // The data are the same.
  EXPECT_EQ(plain->digest(), index->digest());
  // Hashes of some alone are not written.
  contents.is_hashed = true;
  contents.stream_hashes.pop_back();
  EXPECT_EQ(WriteIndex(TestFolder() + "/b.index", contents).code(),
            absl::StatusCode::kInternal);
}

TEST(IndexMarksTest, AnOlderIndexIsOnlyReused) {
  IndexContents contents = MarkedContents();
  contents.files[0].media_time_ns = 77;
  EXPECT_EQ(Written(contents)->media_time_ns(0), 77);
  const std::string path = Written(contents)->path();
  WriteFile(path, OldIndexOf(ReadFile(path)));
  const absl::Status status = IndexFile::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), path +
                                  ": index of version 6, wanted 8: an "
                                  "earlier version of this program wrote it");
  const auto old = IndexFile::OpenToReuse(path);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_TRUE((*old)->Verify(nullptr).ok());
  EXPECT_FALSE((*old)->HasMarks());
  EXPECT_FALSE((*old)->is_hashed());
  EXPECT_EQ((*old)->media_time_ns(0), 0);
  EXPECT_EQ((*old)->file_name(0), "a.tar");
  EXPECT_EQ((*old)->sample(1)->media.images().size(), 2);
  EXPECT_TRUE(Written(MarkedContents())->HasMarks());
}

}  // namespace
}  // namespace ballast
