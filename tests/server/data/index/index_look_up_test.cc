#include "server/data/index/index_file.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_writer.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `n` samples of 0, 1, 2, 0, … images in one file.
IndexContents ManySamples(uint64_t n) {
  IndexContents contents;
  contents.format = 1;
  contents.files = {{"a.tar", {n * 100, 5}, 0}};
  for (uint64_t i = 0; i < n; ++i) {
    IndexSampleRecord sample = {};
    sample.offset = i * 100;
    sample.length = 100;
    sample.first_image = contents.images.size();
    sample.num_images = i % 3;
    sample.text_tokens = static_cast<uint32_t>(i);
    for (uint32_t k = 0; k < sample.num_images; ++k) {
      contents.images.push_back({static_cast<uint32_t>(i + 1), k + 1});
    }
    contents.samples.push_back(sample);
  }
  return contents;
}

IndexHeader ReadHeader(absl::string_view bytes) {
  IndexHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

std::shared_ptr<const IndexFile> OpenOrFail(const std::string& path) {
  auto index = IndexFile::Open(path);
  EXPECT_TRUE(index.ok()) << index.status();
  return index.ok() ? *std::move(index) : nullptr;
}

// Bytes of the file at `path` in this process's memory.
uint64_t ResidentBytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  uint64_t bytes = 0;
  while (std::getline(maps, line)) {
    if (line.find('-') < line.find(' ')) inside = absl::StrContains(line, path);
    if (inside && absl::StartsWith(line, "Rss:")) {
      bytes += 1024 * std::strtoull(line.c_str() + 4, nullptr, 10);
    }
  }
  return bytes;
}

// The pages that a look-up of `ordinal` must read by the layout: its record,
// its images and their checksums.
std::set<uint64_t> PagesOf(const IndexHeader& header,
                           const IndexSampleRecord& record, uint64_t ordinal) {
  std::set<uint64_t> pages;
  const auto add = [&](uint64_t begin, uint64_t size) {
    if (size == 0) return;
    for (const uint64_t at : {begin, begin + size - 1}) {
      pages.insert(at / 4096);
      const uint64_t page = (at - header.sample_table) / 4096;
      pages.insert((header.page_checksums + 8 * page) / 4096);
    }
  };
  add(header.sample_table + 56 * ordinal, 56);
  add(header.image_table + 8 * record.first_image, 8 * record.num_images);
  return pages;
}

TEST(IndexLookUpTest, OpeningReadsOnlyTheHeadAndALookUpItsPages) {
  const std::string path = TestFolder() + "/a.index";
  const IndexContents contents = ManySamples(100'000);
  ASSERT_TRUE(WriteIndex(path, contents).ok());
  const IndexHeader header = ReadHeader(ReadFile(path));
  const auto index = OpenOrFail(path);
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(index->num_touched_pages(), 0);
  EXPECT_EQ(index->digest().size(), 32);
  // The system also maps neighbours of a page that are in memory already: 64
  // KiB around it and the rest of that read-ahead.
  constexpr uint64_t kAround = 128 << 10;
  ASSERT_GT(ResidentBytes(path), 0);
  EXPECT_LE(ResidentBytes(path), kAround);
  std::set<uint64_t> pages;
  for (const uint64_t ordinal : {0, 1, 73, 99'999, 5'000, 5'001, 5'000}) {
    pages.merge(PagesOf(header, contents.samples[ordinal], ordinal));
    const auto sample = index->sample(ordinal);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->text_tokens, ordinal);
    EXPECT_EQ(sample->media.images().size(), ordinal % 3);
    EXPECT_EQ(index->num_touched_pages(), pages.size()) << ordinal;
  }
  EXPECT_LE(ResidentBytes(path), (1 + pages.size()) * kAround);
  EXPECT_FALSE(index->IsTouched(50'000));
  EXPECT_TRUE(index->IsTouched(5'000));
  // Prefetch reads the records to find their images.
  const std::vector<uint64_t> some = {7, 50'000, 50'000, 70'000};
  index->Prefetch(some);
  index->Prefetch({});
  EXPECT_EQ(index->sample(50'000)->text_tokens, 50'000);
  uint64_t last = 0;
  ASSERT_TRUE(index->Verify([&](uint64_t samples) { last = samples; }).ok());
  EXPECT_EQ(last, 0);  // called at the first, then each few million
  EXPECT_EQ(index->num_touched_pages(),
            (header.page_checksums - header.sample_table) / 4096 +
                (header.total_bytes - header.page_checksums + 4095) / 4096);
}

TEST(IndexLookUpTest, ALookUpReportsDamageOfItsPages) {
  const std::string path = TestFolder() + "/a.index";
  const IndexContents contents = ManySamples(60'000);
  ASSERT_TRUE(WriteIndex(path, contents).ok());
  const std::string bytes = ReadFile(path);
  const IndexHeader header = ReadHeader(bytes);
  // Damages a page of samples, a page of images and a page of checksums.
  for (const uint64_t at :
       {header.sample_table + 7 * 4096 + 100, header.image_table + 3 * 4096 + 9,
        header.page_checksums + 4096 + 1}) {
    std::string damaged = bytes;
    damaged[at] ^= 4;
    WriteFile(path, damaged);
    const auto index = OpenOrFail(path);
    ASSERT_NE(index, nullptr);
    const std::string place =
        absl::StrCat("damaged index: bytes ", at / 4096 * 4096, " to ",
                     std::min(at / 4096 * 4096 + 4096, header.total_bytes) - 1,
                     " are not what was written");
    std::vector<uint64_t> all(index->size());
    for (uint64_t i = 0; i < all.size(); ++i) all[i] = i;
    index->Prefetch(all);
    uint64_t failed = 0;
    for (const uint64_t i : all) {
      const bool hit =
          PagesOf(header, contents.samples[i], i).count(at / 4096) > 0;
      const auto sample = index->sample(i);
      ASSERT_EQ(sample.ok(), !hit) << i << ": " << sample.status();
      ASSERT_EQ(index->IsTouched(i), !hit);
      if (!hit) continue;
      ++failed;
      ASSERT_EQ(sample.status().code(), absl::StatusCode::kDataLoss);
      const std::string message(sample.status().message());
      ASSERT_THAT(message, HasSubstr(path + ": " + place));
      ASSERT_THAT(message, HasSubstr("ballast-server index --config F "
                                     "--verify"));
    }
    EXPECT_GT(failed, 70u);
    EXPECT_THAT(std::string(index->Verify(nullptr).message()),
                HasSubstr(place));
  }
}

TEST(IndexLookUpTest, ManyThreadsMayTouchTheSamePages) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, ManySamples(30'000)).ok());
  const auto index = OpenOrFail(path);
  ASSERT_NE(index, nullptr);
  std::atomic<uint64_t> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < index->size(); ++i) {
        const uint64_t ordinal = (i * 7 + t * 3) % index->size();
        if (i % 100 == 0) index->Prefetch({&ordinal, 1});
        const auto sample = index->sample(ordinal);
        right += sample.ok() && sample->text_tokens == ordinal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * index->size());
}

TEST(IndexLookUpTest, StaysWithinTheBytesPerSample) {
  const std::string path = TestFolder() + "/a.index";
  ASSERT_TRUE(WriteIndex(path, ManySamples(30'000)).ok());
  // At most 64 bytes per sample and 8 per image, besides the head.
  EXPECT_LE(ReadFile(path).size(), 4096 + 30'000 * 64 + 30'000 * 8);
}

TEST(IndexLookUpTest, SeesWritesToTheOpenFileAlone) {
  const std::string folder = TestFolder();
  const std::string path = folder + "/docs.index";
  ASSERT_TRUE(WriteIndex(path, ManySamples(1000)).ok());
  const std::string bytes = ReadFile(path);
  const auto time = std::filesystem::last_write_time(path);
  const auto index = OpenOrFail(path);
  ASSERT_NE(index, nullptr);
  EXPECT_TRUE(index->CheckUnchanged().ok());
  // What changes no byte does not matter.
  std::filesystem::create_hard_link(path, folder + "/link");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  EXPECT_TRUE(index->CheckUnchanged().ok());
  const auto write = [&](const std::string& now) {
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << now;
  };
  const auto expect_changed = [&] {
    const absl::Status status = index->CheckUnchanged();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(path + ": the index has changed under this server"));
  };
  write(bytes);
  expect_changed();  // by its time
  std::filesystem::last_write_time(path, time);
  EXPECT_TRUE(index->CheckUnchanged().ok());
  // An index of the same size, with the time of the first.
  IndexContents contents = ManySamples(1000);
  contents.samples[7].text_tokens += 1;
  ASSERT_TRUE(WriteIndex(folder + "/other", contents).ok());
  ASSERT_EQ(ReadFile(folder + "/other").size(), bytes.size());
  write(ReadFile(folder + "/other"));
  std::filesystem::last_write_time(path, time);
  expect_changed();
  write(bytes);
  std::filesystem::last_write_time(path, time);
  EXPECT_TRUE(index->CheckUnchanged().ok());
  // An index in its place is another file.
  ASSERT_TRUE(WriteIndex(path, contents).ok());
  EXPECT_TRUE(index->CheckUnchanged().ok());
  EXPECT_EQ(index->sample(7)->text_tokens, 7u);
}

// What an index holds of videos.

StreamFacts Video(uint32_t frames) {
  StreamFacts video = {};
  video.fps = 29.97;
  video.start = 1.5;
  video.flags = StreamFacts::kHasStart;
  video.frames = frames;
  video.width = 640;
  video.height = 360;
  std::strcpy(video.codec, "h264");
  return video;
}

// Three samples with 0, 2 and 0 videos and an image each, and one that is left
// out, with 1.
IndexContents FewContents() {
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
  contents.streams = {Video(100), Video(200), Video(300)};
  contents.stream_records = {1, 1, 3};
  return contents;
}

std::shared_ptr<const IndexFile> WriteFew(const IndexContents& contents) {
  const std::string path = ::testing::TempDir() + "/a.index";
  EXPECT_TRUE(WriteIndex(path, contents).ok());
  auto index = IndexFile::Open(path);
  EXPECT_TRUE(index.ok()) << index.status();
  return *index;
}

TEST(IndexVideosTest, HoldsTheVideosOfEachSample) {
  const auto index = WriteFew(FewContents());
  EXPECT_TRUE(index->Verify(nullptr).ok()) << index->Verify(nullptr);
  EXPECT_EQ(index->media_counts()[MediumKind::kVideo], 2u);
  EXPECT_TRUE(Videos(*index->sample(0)).empty());
  EXPECT_TRUE(Videos(*index->sample(2)).empty());
  const auto sample = index->sample(1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(sample->media.count(MediumKind::kVideo), 2u);
  EXPECT_EQ(sample->media.images().size(), 1u);
  const StreamFacts wanted = Video(200);
  EXPECT_EQ(std::memcmp(&sample->media.streams()[1], &wanted, sizeof(wanted)),
            0);
  const auto left_out = index->streams(3);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  ASSERT_EQ(left_out->size(), 1u);
  EXPECT_EQ(left_out->front().frames, 300u);
}

TEST(IndexVideosTest, TheDigestCoversTheVideosOfSamples) {
  const std::string with = WriteFew(FewContents())->digest();
  IndexContents other = FewContents();
  other.streams[1].fps = 30;
  EXPECT_NE(WriteFew(other)->digest(), with);
  other = FewContents();
  other.stream_records = {0, 1, 3};
  EXPECT_NE(WriteFew(other)->digest(), with);
  // That of a sample left out is not data.
  other = FewContents();
  other.streams[2].frames = 1;
  EXPECT_EQ(WriteFew(other)->digest(), with);
  // Without videos of samples it is that of a source without any.
  other.streams = {Video(5)};
  other.stream_records = {3};
  IndexContents none = FewContents();
  none.streams.clear();
  none.stream_records.clear();
  EXPECT_EQ(WriteFew(other)->digest(), WriteFew(none)->digest());
  EXPECT_EQ(WriteFew(none)->media_counts()[MediumKind::kVideo], 0u);
}

// Of the second video of sample 1 and of the one left out.
TEST(IndexVideosTest, HoldsTheTimesOfVideosOfVariableRate) {
  const std::string constant = WriteFew(FewContents())->digest();
  IndexContents contents = FewContents();
  contents.streams[1].frames = 3;
  contents.streams[1].flags |= StreamFacts::kHasTimes;
  contents.streams[2].frames = 1;
  contents.streams[2].flags |= StreamFacts::kHasTimes;
  contents.times = {0, 10, 500, 600, 0, 40};
  const auto index = WriteFew(contents);
  EXPECT_TRUE(index->Verify(nullptr).ok()) << index->Verify(nullptr);
  const auto sample = index->sample(1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  const std::vector<IndexedMedium> videos =
      sample->media.of(MediumKind::kVideo);
  EXPECT_THAT(videos[0].times, ElementsAre());
  EXPECT_THAT(videos[1].times, ElementsAre(0, 10, 500, 600));
  EXPECT_TRUE(index->sample(0)->media.times().empty());
  EXPECT_TRUE(index->sample(2)->media.times().empty());
  EXPECT_THAT(*index->times(3), ElementsAre(0, 40));
  // Times of samples are data, those of one left out are not.
  IndexContents other = contents;
  other.times[5] = 41;
  EXPECT_EQ(WriteFew(other)->digest(), index->digest());
  other.times[2] = 501;
  EXPECT_NE(WriteFew(other)->digest(), index->digest());
  // Without times the digest is as it was before there were any.
  const IndexContents few = FewContents();
  const uint64_t starts[] = {0, 0, 2, 2};
  const Digest digest =
      DigestOfSamples(few.samples, few.images, {}, starts,
                      absl::MakeConstSpan(few.streams).first(2));
  EXPECT_EQ(constant, absl::StrFormat("%016x%016x", digest[0], digest[1]));
}

TEST(IndexVideosTest, ReportsAVideoThatCannotBe) {
  IndexContents contents = FewContents();
  contents.streams[0].frames = 0;
  const auto index = WriteFew(contents);
  EXPECT_TRUE(index->sample(0).ok());
  EXPECT_THAT(std::string(index->sample(1).status().message()),
              ::testing::HasSubstr("a video of sample 1 has no frames"));
}

}  // namespace
}  // namespace ballast
