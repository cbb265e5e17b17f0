#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/config.pb.h"
#include "server/data/index/index_builder.h"
#include "server/data/index/index_check.h"
#include "server/data/index/index_writer.h"
#include "server/data/open_source.h"
#include "server/media/image/image.h"
#include "server/media/image/sound_scan.h"
#include "server/sample/image_header.h"
#include "server/sample/index_format.h"
#include "tests/fakes/made_jpegs.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

// Length of the file of image `i` if it may travel encoded.
uint32_t EncodedLength(const absl::StatusOr<IndexedSample>& sample, size_t i) {
  return sample->encoded_bytes(sample->media.of(MediumKind::kImage)[i]);
}

// Options of building an index that read real image headers.
IndexOptions RealImageOptions() {
  IndexOptions options = FakeOptions();
  options.read_image_size =
      [](absl::string_view bytes) -> absl::StatusOr<ImageSize> {
    const auto header = ReadImageHeader(bytes);
    if (!header.ok()) return header.status();
    return ImageSize{header->width, header->height};
  };
  return options;
}

// Writes `images` as samples "0000", "0001", … with one image each to
// `folder`/docs.tar and indexes them; each image must have a header.
v1::Source IndexImages(const std::string& folder,
                       const std::vector<std::string>& images) {
  std::vector<std::pair<std::string, std::string>> members;
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string key = absl::StrFormat("%04d", i);
    members.emplace_back(key + ".txt", "text");
    members.emplace_back(key + ".jpg", images[i]);
  }
  WriteTar(folder + "/docs.tar", members);
  const v1::Source source =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs.tar");
  const auto report = BuildIndex(source, folder, RealImageOptions());
  EXPECT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, images.size());
  return source;
}

// Opens the source of IndexImages.
std::unique_ptr<FileSource> OpenImages(const std::string& folder,
                                       const v1::Source& source) {
  auto opened = OpenSource(source, folder, FakeKey());
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

// One thread, CheckScan, and units of `images` images.
CheckOptions ScanOptions(uint64_t images = 4) {
  CheckOptions options;
  options.check = CheckScan;
  options.unit_size.images = images;
  return options;
}

// 560 damaged files of many kinds that still have a header.
std::vector<std::string> DamagedImages() {
  std::vector<std::string> images;
  uint32_t seed = 0;
  for (const ChromaSampling sampling :
       {ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k422,
        ChromaSampling::k420}) {
    for (const int interval : {0, 7}) {
      const std::string made = MakeJpeg({.width = 83,
                                         .height = 61,
                                         .sampling = sampling,
                                         .restart_interval = interval,
                                         .seed = 1 + seed});
      for (int left = 70; left > 0; ++seed) {
        std::string copy =
            DamagedCopy(made, static_cast<int>(seed % kDamageKinds), seed);
        // A build lists files without a header as bad.
        if (!ReadImageHeader(copy).ok()) continue;
        images.push_back(std::move(copy));
        --left;
      }
    }
  }
  return images;
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kIndex[] = "/index/docs.index";

// `n` sound files; every fifth is not for engines.
std::vector<std::string> SoundImages(uint32_t n) {
  std::vector<std::string> images;
  for (uint32_t i = 0; i < n; ++i) {
    images.push_back(
        MakeJpeg({.width = 20 + i, .progressive = i % 5 == 4, .seed = 1 + i}));
  }
  return images;
}

class IndexCheckTest : public ::testing::Test {
 protected:
  // The index after a check of one shard, with its marks as `rule` has them.
  std::shared_ptr<const IndexFile> Checked(const v1::Source& source,
                                           const CheckOptions& options) {
    const auto report = CheckImages(*OpenImages(folder_, source), options);
    EXPECT_TRUE(report.ok()) << report.status();
    report_ = report.ok() ? *report : CheckReport();
    const auto marks = MergeChecks(folder_ + kIndex, options.unit_size);
    EXPECT_TRUE(marks.ok()) << marks.status();
    auto index = IndexFile::Open(folder_ + kIndex, EncodedRule::kChecked);
    EXPECT_TRUE(index.ok()) << index.status();
    EXPECT_TRUE((*index)->Verify(nullptr).ok());
    EXPECT_EQ((*index)->mark_counts(), *marks);
    return *index;
  }

  const std::string folder_ = TestFolder();
  CheckReport report_;
};

TEST_F(IndexCheckTest, NotesHashesOfCleanFiles) {
  const std::vector<std::string> images = SoundImages(20);
  const auto index = Checked(IndexImages(folder_, images), ScanOptions());
  EXPECT_EQ(report_.images, 16);
  EXPECT_EQ(report_.clean, 16);
  EXPECT_EQ(report_.resumed, 0);
  for (uint64_t i = 0; i < images.size(); ++i) {
    const auto sample = index->sample(i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    if (i % 5 == 4) {
      EXPECT_EQ(EncodedLength(sample, 0), 0);
      EXPECT_EQ(sample->media.marks()[0].refusal(), EngineRefusal::kProcess);
    } else {
      EXPECT_EQ(EncodedLength(sample, 0), images[i].size());
      EXPECT_THAT(index->media_hashes(i)->images,
                  ElementsAre(Checksum(images[i])));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ + kIndex + ".check-1-of-1"));
}

// What travels encoded is what the strict reader passes, and the server decodes
// each such file without a warning.
TEST_F(IndexCheckTest, LeavesDamagedFilesToTheServer) {
  const std::vector<std::string> images = DamagedImages();
  ASSERT_EQ(images.size(), 560);
  const auto index = Checked(IndexImages(folder_, images), ScanOptions(64));
  ImageDecoder decoder;
  uint64_t clean = 0;
  for (uint64_t i = 0; i < images.size(); ++i) {
    const auto sample = index->sample(i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    const bool passes = CheckScan(images[i]).ok();
    EXPECT_EQ(EncodedLength(sample, 0), passes ? images[i].size() : 0) << i;
    if (!passes) continue;
    ++clean;
    EXPECT_EQ(index->media_hashes(i)->images[0], Checksum(images[i]));
    EXPECT_TRUE(decoder.Decode(images[i]).ok()) << i;
    EXPECT_EQ(decoder.warnings(), 0) << i;
  }
  EXPECT_EQ(report_.clean, clean);
  const ImageMarkCounts marks = index->mark_counts();
  EXPECT_EQ(marks.with(ImageCheckResult::kClean), clean);
  EXPECT_EQ(marks.with(ImageCheckResult::kUnsound), report_.unsound);
  EXPECT_TRUE(marks.checked());
  EXPECT_EQ(marks.images, 560);
  // Both kinds are there, and the first hundred are listed in order.
  EXPECT_GT(clean, 100);
  EXPECT_GT(report_.unsound, CheckReport::kMaxListed);
  ASSERT_EQ(report_.unclean.size(), CheckReport::kMaxListed);
  EXPECT_LT(report_.unclean[0].record, report_.unclean[1].record);
  EXPECT_THAT(report_.unclean[0].reason, HasSubstr("docs.tar: 0"));
  EXPECT_THAT(report_.unclean[0].reason, HasSubstr(": image 0: JPEG: "));
}

TEST_F(IndexCheckTest, ShardsMergedAreOneRunToTheByte) {
  const std::vector<std::string> images = DamagedImages();
  const v1::Source source = IndexImages(folder_, images);
  const std::string built = ReadFile(folder_ + kIndex);
  Checked(source, ScanOptions(16));
  const std::string one_run = ReadFile(folder_ + kIndex);
  EXPECT_NE(one_run, built);
  for (const uint32_t shards : {2, 5, 50}) {
    WriteFile(folder_ + kIndex, built);
    CheckOptions options = ScanOptions(16);
    uint64_t checked = 0;
    for (uint32_t number = shards; number > 0; --number) {
      options.shard = {number, shards};
      options.threads = 1 + number % 4;
      EXPECT_EQ(ReadFile(folder_ + kIndex), built);
      const auto report = CheckImages(*OpenImages(folder_, source), options);
      ASSERT_TRUE(report.ok()) << report.status();
      checked += report->images;
    }
    EXPECT_EQ(checked, report_.images);
    ASSERT_TRUE(MergeChecks(folder_ + kIndex, options.unit_size).ok());
    EXPECT_EQ(ReadFile(folder_ + kIndex), one_run) << shards;
    EXPECT_FALSE(std::filesystem::exists(
        JournalPath(folder_ + kIndex, kCheckJournal, {shards, shards})));
  }
}

TEST_F(IndexCheckTest, RefusesToMergeShardsThatAreNotDone) {
  const v1::Source source = IndexImages(folder_, SoundImages(40));
  CheckOptions options = ScanOptions();
  const std::string path = folder_ + kIndex;
  const auto merge = [&] {
    const absl::Status status = MergeChecks(path, options.unit_size).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(merge(), HasSubstr("no results of a check of this index"));
  options.shard = {1, 2};
  ASSERT_TRUE(CheckImages(*OpenImages(folder_, source), options).ok());
  EXPECT_THAT(merge(), HasSubstr("shard 2/2 has checked 0 of its 4 parts"));
  // The results of shards do not hold for an index that was built later.
  options.shard = {2, 2};
  ASSERT_TRUE(CheckImages(*OpenImages(folder_, source), options).ok());
  IndexImages(folder_, SoundImages(39));
  EXPECT_THAT(merge(), HasSubstr("no results of a check of this index"));
}

TEST_F(IndexCheckTest, GoesOnAfterAKill) {
  const std::vector<std::string> images = SoundImages(40);
  const v1::Source source = IndexImages(folder_, images);
  const std::string built = ReadFile(folder_ + kIndex);
  const CheckOptions options = ScanOptions();
  Checked(source, options);
  const std::string one_run = ReadFile(folder_ + kIndex);
  WriteFile(folder_ + kIndex, built);
  // Killed at the 19th image: four units of four are recorded.
  EXPECT_EXIT(
      {
        int checked = 0;
        CheckOptions killed = options;
        killed.check = [&checked](absl::string_view jpeg) {
          if (++checked == 19) kill(getpid(), SIGKILL);
          return CheckScan(jpeg);
        };
        CheckImages(*OpenImages(folder_, source), killed).IgnoreError();
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(ReadFile(folder_ + kIndex), built);
  int checked = 0;
  CheckOptions counted = options;
  counted.check = [&checked](absl::string_view jpeg) {
    ++checked;
    return CheckScan(jpeg);
  };
  Checked(source, counted);
  EXPECT_EQ(report_.resumed, 16);
  EXPECT_EQ(report_.images, 32);
  EXPECT_EQ(report_.clean, 32);
  EXPECT_EQ(checked, 16);
  EXPECT_EQ(ReadFile(folder_ + kIndex), one_run);
  // Nothing is left to check.
  Checked(source, counted);
  EXPECT_EQ(checked, 16);
  EXPECT_EQ(ReadFile(folder_ + kIndex), one_run);
}

TEST_F(IndexCheckTest, ReportsProgressFromTheStart) {
  const v1::Source source = IndexImages(folder_, SoundImages(40));
  CheckOptions options = ScanOptions(16);
  std::vector<IndexProgress> calls;
  options.progress = [&calls](const IndexProgress& progress) {
    calls.push_back(progress);
  };
  Checked(source, options);
  ASSERT_EQ(calls.size(), 3);
  EXPECT_EQ(calls[0].bytes_done, 0);
  EXPECT_EQ(calls[1].samples, 16);
  EXPECT_EQ(calls[2].samples, 32);
  EXPECT_EQ(calls[2].bytes_done, calls[0].bytes_total);
}

TEST_F(IndexCheckTest, ABuildKeepsTheChecksOfFilesThatStay) {
  const v1::Source source = IndexImages(folder_, SoundImages(20));
  Checked(source, ScanOptions());
  v1::Source more = source;
  more.set_path("*.tar");
  WriteTar(folder_ + "/more.tar",
           {{"a.txt", "text"}, {"a.jpg", MakeJpeg({.seed = 99})}});
  ASSERT_TRUE(BuildIndex(more, folder_, RealImageOptions()).ok());
  auto index = IndexFile::Open(folder_ + kIndex);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ((*index)->mark_counts().with(ImageCheckResult::kClean), 16);
  EXPECT_FALSE((*index)->mark_counts().checked());
  // Only the new image is read, and the result is that of one check of all.
  Checked(more, ScanOptions());
  EXPECT_EQ(report_.images, 1);
  const std::string in_parts = ReadFile(folder_ + kIndex);
  IndexOptions anew = RealImageOptions();
  anew.reuse = false;
  ASSERT_TRUE(BuildIndex(more, folder_, anew).ok());
  Checked(more, ScanOptions());
  EXPECT_EQ(report_.images, 17);
  EXPECT_EQ(ReadFile(folder_ + kIndex), in_parts);
}

TEST_F(IndexCheckTest, KeepsTheVideosOfSamples) {
  WriteTar(folder_ + "/docs.tar", {{"a.txt", "text"},
                                   {"a.jpg", MakeJpeg({})},
                                   {"b.txt", "text"},
                                   {"b.jpg", MakeJpeg({})},
                                   {"b.mp4", "a video"}});
  const v1::Source source =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs.tar");
  IndexOptions options = RealImageOptions();
  options.read[MediumKind::kVideo] = [](const RawMedium&) {
    StreamFacts video = {};
    video.fps = 30;
    video.frames = video.width = video.height = 60;
    return absl::StatusOr<StreamFacts>(video);
  };
  ASSERT_TRUE(BuildIndex(source, folder_, options).ok());
  const std::string digest = (*IndexFile::Open(folder_ + kIndex))->digest();
  const auto index = Checked(source, ScanOptions());
  EXPECT_EQ(index->mark_counts().with(ImageCheckResult::kClean), 2);
  EXPECT_EQ(index->digest(), digest);
  EXPECT_EQ(index->media_counts()[MediumKind::kVideo], 1u);
  const auto sample = index->sample(1);
  ASSERT_TRUE(sample.ok()) << sample.status();
  ASSERT_EQ(Videos(*sample).size(), 1u);
  EXPECT_EQ(Videos(*sample)[0].frames, 60u);
}

class ChangedImageTest : public IndexCheckTest {
 protected:
  ChangedImageTest() {
    for (const char* name : {"a", "b", "c"}) {
      WriteFile(folder_ + "/media/" + name + ".jpg", MakeJpeg({}));
    }
    WriteFile(folder_ + "/chat.jsonl",
              "{\"image\": \"a.jpg\"}\n{\"image\": \"b.jpg\"}\n"
              "{\"image\": \"c.jpg\"}\n");
    source_ = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
    source_.add_media_root("media");
    const auto report = BuildIndex(source_, folder_, RealImageOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->samples, 3);
  }

  v1::Source source_;
};

TEST_F(ChangedImageTest, AFileWithAnotherHeaderIsNotClean) {
  const std::string path = folder_ + "/media/b.jpg";
  const auto time = std::filesystem::last_write_time(path);
  WriteFile(path, MakeJpeg({.quality = 20}));
  // One that was modified later may be in the midst of a copy.
  std::filesystem::last_write_time(path, time + std::chrono::seconds(60));
  EXPECT_EQ(CheckImages(*OpenImages(folder_, source_), ScanOptions(1))
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  std::filesystem::last_write_time(path, time);
  const auto index = Checked(source_, ScanOptions(1));
  EXPECT_EQ(report_.clean, 2);
  EXPECT_EQ(report_.changed, 1);
  EXPECT_EQ(index->marks(1)[0].check(), ImageCheckResult::kChanged);
  ASSERT_EQ(report_.unclean.size(), 1);
  EXPECT_EQ(report_.unclean[0].record, 1);
  EXPECT_THAT(report_.unclean[0].reason, HasSubstr("chat.jsonl"));
}

// A file that cannot be read may be there again later.
TEST_F(ChangedImageTest, AFileThatIsGoneLeavesItsPartOpen) {
  std::filesystem::remove(folder_ + "/media/b.jpg");
  const absl::Status status =
      CheckImages(*OpenImages(folder_, source_), ScanOptions(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("1 of 3 parts of the check"));
  EXPECT_THAT(status.message(), HasSubstr("b.jpg"));
  WriteFile(folder_ + "/media/b.jpg", MakeJpeg({}));
  Checked(source_, ScanOptions(1));
  EXPECT_EQ(report_.resumed, 2);
  EXPECT_EQ(report_.clean, 3);
}

using ::testing::IsEmpty;

// Samples of 0, 1, 2, 0, 1, 2, … images of 100 bytes; every seventh image is
// already checked.
std::shared_ptr<const IndexFile> Index(uint32_t samples) {
  IndexContents contents;
  contents.files = {{"a.tar", {1000, 5}, 0}};
  for (uint32_t i = 0; i < samples; ++i) {
    IndexSampleRecord sample = {};
    sample.offset = i;
    sample.first_image = contents.images.size();
    sample.num_images = i % 3 & 3;
    contents.samples.push_back(sample);
    for (uint32_t k = 0; k < i % 3; ++k) {
      const bool is_checked = contents.images.size() % 7 == 0;
      contents.images.push_back({10, 20});
      contents.marks.push_back(
          ImageMark::Marked(100, is_checked ? ImageCheckResult::kUnsound
                                            : ImageCheckResult::kUnchecked));
    }
  }
  const std::string path = TestFolder() + "/a.index";
  EXPECT_TRUE(WriteIndex(path, contents).ok());
  const auto index = IndexFile::Open(path);
  EXPECT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE((*index)->Verify(nullptr).ok());
  return *index;
}

TEST(CheckPlanTest, UnitsEndAtEitherBound) {
  // Images 0 | 1 2 | 3 | 4 5 | 6 | 7 8 of samples 1, 2, 4, 5, 7, 8; of them 0
  // and 7 are checked.
  const auto index = Index(9);
  EXPECT_THAT(PlanCheck(*index, {.bytes = 10'000, .images = 3}),
              ElementsAre(CheckUnit{0, 5, 3, 300}, CheckUnit{5, 8, 3, 300},
                          CheckUnit{8, 9, 1, 100}));
  EXPECT_THAT(PlanCheck(*index, {.bytes = 200, .images = 100}),
              ElementsAre(CheckUnit{0, 3, 2, 200}, CheckUnit{3, 6, 3, 300},
                          CheckUnit{6, 9, 2, 200}));
  EXPECT_THAT(PlanCheck(*index), ElementsAre(CheckUnit{0, 9, 7, 700}));
  EXPECT_THAT(PlanCheck(*Index(2)), IsEmpty());
}

// Which indexes a job with `decode: device` accepts, and what travels encoded.

v1::Config GetConfig(v1::Model::Decode decode, bool unchecked = false) {
  v1::Config config;
  config.mutable_model()->set_decode(decode);
  config.mutable_model()->set_device_unchecked(unchecked);
  return config;
}

class DecodeDeviceTest : public ::testing::Test {
 protected:
  // A sound file, one that is damaged behind its header, a progressive one.
  DecodeDeviceTest() {
    std::string damaged = MakeJpeg({.width = 90, .height = 90});
    damaged.erase(damaged.size() / 2, 5);
    images_ = {MakeJpeg({}), damaged, MakeJpeg({.progressive = true})};
    source_ = IndexImages(folder_, images_);
  }

  absl::StatusOr<std::unique_ptr<SampleSource>> Open(const v1::Config& config) {
    return OpenAnySource(source_, config, folder_, FakeKey());
  }

  // Lengths of the files that travel encoded.
  std::vector<uint32_t> Encoded(const v1::Config& config) {
    std::vector<uint32_t> lengths;
    const auto opened = Open(config);
    EXPECT_TRUE(opened.ok()) << opened.status();
    for (uint64_t i = 0; opened.ok() && i < images_.size(); ++i) {
      lengths.push_back(EncodedLength((*opened)->index().sample(i), 0));
    }
    return lengths;
  }

  const std::string folder_ = TestFolder();
  std::vector<std::string> images_;
  v1::Source source_;
};

TEST_F(DecodeDeviceTest, NeedsACheckOrConsent) {
  const v1::Config device = GetConfig(v1::Model::DECODE_DEVICE);
  const absl::Status status = Open(device).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("source docs: model.decode is device, and 2 of 2 "
                        "images that JPEG engines may decode have not been "
                        "checked"));
  EXPECT_THAT(status.message(), HasSubstr("ballast-server index --check"));
  EXPECT_THAT(status.message(), HasSubstr("model.device_unchecked: true"));
  const auto length = [&](size_t i) {
    return static_cast<uint32_t>(images_[i].size());
  };
  using Lengths = std::vector<uint32_t>;
  const v1::Config unchecked = GetConfig(v1::Model::DECODE_DEVICE, true);
  const v1::Config host = GetConfig(v1::Model::DECODE_HOST);
  EXPECT_EQ(Encoded(unchecked), (Lengths{length(0), length(1), 0}));
  EXPECT_EQ(Encoded(host), (Lengths{0, 0, 0}));

  const CheckOptions options = ScanOptions();
  ASSERT_TRUE(CheckImages(*OpenImages(folder_, source_), options).ok());
  ASSERT_TRUE(
      MergeChecks(folder_ + "/index/docs.index", options.unit_size).ok());
  EXPECT_EQ(Encoded(device), (Lengths{length(0), 0, 0}));
  EXPECT_EQ(Encoded(unchecked), (Lengths{length(0), 0, 0}));
  EXPECT_EQ(Encoded(host), (Lengths{0, 0, 0}));
}

}  // namespace

}  // namespace ballast
