#include <atomic>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/bad_records.h"
#include "server/data/index/index_builder.h"
#include "server/data/index/index_file.h"
#include "server/data/source_files.h"
#include "server/sample/index_format.h"
#include "tests/fakes/old_index.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOldIndex[] = "/index/docs.index";

// Counts of what a build has read.
struct Reads {
  int images = 0;
  int texts = 0;
};

class IndexReuseTest : public ::testing::Test {
 protected:
  // Builds over the existing index and counts.
  IndexReport Build(const v1::Source& source, IndexOptions options) {
    std::atomic<int> images = 0;
    std::atomic<int> texts = 0;
    options.read_image_size = [&](absl::string_view bytes) {
      ++images;
      return ReadFakeImage(bytes);
    };
    options.measure = [&, measure = options.measure](
                          const RawSample& sample,
                          absl::Span<const ImageSize> sizes) {
      ++texts;
      return measure(sample, sizes);
    };
    const auto report = BuildIndex(source, folder_, options);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(CheckIndexFresh(source, folder_, options.key).ok());
    reads_ = {images, texts};
    return report.ok() ? *report : IndexReport();
  }

  // Checks that `options` over the old index give, byte for byte, the index
  // that they give without one. The report and the reads are those of the build
  // over the old index.
  IndexReport BuildBothWays(const v1::Source& source, IndexOptions options) {
    const IndexReport report = Build(source, options);
    const Reads reads = reads_;
    const std::string bytes = ReadFile(folder_ + kOldIndex);
    options.reuse = false;
    const IndexReport anew = Build(source, options);
    EXPECT_EQ(ReadFile(folder_ + kOldIndex), bytes);
    EXPECT_EQ(anew.samples, report.samples);
    EXPECT_EQ(anew.skipped, report.skipped);
    EXPECT_EQ(anew.bad.size(), report.bad.size() + report.known_bad);
    EXPECT_EQ(anew.reused_files, 0);
    reads_ = reads;
    return report;
  }

  // Writes two files. In the second, one sample is bad because of its image,
  // and one because of its text. Seven images in all, one of them bad; nine
  // texts.
  v1::Source WriteTars() {
    std::filesystem::create_directories(folder_ + "/data");
    WriteTar(folder_ + "/data/docs-0.tar", {{"a.txt", "one"},
                                            {"a.0.jpg", FakeImage(1, 2)},
                                            {"a.1.jpg", FakeImage(3, 4)},
                                            {"b.txt", "skip me"},
                                            {"b.jpg", FakeImage(5, 6)},
                                            {"c.txt", "three"}});
    WriteTar(folder_ + "/data/docs-1.tar", {{"a.txt", "x"},
                                            {"a.jpg", "not an image"},
                                            {"b.txt", "unmeasurable"},
                                            {"b.jpg", FakeImage(7, 8)},
                                            {"c.txt", "a limited text"},
                                            {"c.jpg", FakeImage(9, 10)},
                                            {"d.txt", "four"},
                                            {"d.jpg", FakeImage(11, 12)}});
    return MakeSource(v1::Source::FORMAT_WEBDATASET, "data/docs-*.tar");
  }

  const std::string folder_ = TestFolder();
  Reads reads_;
};

TEST_F(IndexReuseTest, AnotherTemplateReadsTextsOnly) {
  const v1::Source source = WriteTars();
  const IndexReport first = Build(source, FakeOptions());
  EXPECT_EQ(first.samples, 4);
  EXPECT_EQ(first.reused_files, 0);
  EXPECT_EQ(reads_.images, 7);
  EXPECT_EQ(reads_.texts, 6);
  IndexOptions options = FakeOptions();
  options.key.lengths = "other";
  options.measure = [](const RawSample& sample,
                       absl::Span<const ImageSize> images) {
    // The sizes are those of the images.
    if (sample.text == "one") {
      EXPECT_EQ(images[1].height, 4);
    }
    if (sample.text == "skip me") {
      EXPECT_EQ(images[0].width, 5);
    }
    TextLengths lengths;
    lengths.text_tokens = 7;
    if (sample.text == "three")
      return absl::StatusOr<TextLengths>(absl::InvalidArgumentError("three"));
    return absl::StatusOr<TextLengths>(lengths);
  };
  const IndexReport report = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 0);
  EXPECT_EQ(reads_.texts, 6);
  EXPECT_EQ(report.samples, 5);  // those that were left out are back
  EXPECT_EQ(report.reused_files, 2);
  EXPECT_EQ(report.reused_samples, 6);
  EXPECT_EQ(report.reused_lengths, 0);
  EXPECT_EQ(report.known_bad, 0);
  ASSERT_EQ(report.bad.size(), 2);
  EXPECT_EQ(report.bad[0].key, "c");
  EXPECT_EQ(report.bad[0].file, "data/docs-0.tar");
  EXPECT_EQ(report.bad[0].reason, "three");
  // Of a file that was not read again.
  EXPECT_EQ(report.bad[1].key, "a");
  EXPECT_EQ(report.bad[1].file, "data/docs-1.tar");
  EXPECT_THAT(report.bad[1].reason, HasSubstr("a.jpg"));
}

TEST_F(IndexReuseTest, OtherLimitsReadOnlyTextsThatMayChange) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  IndexOptions options = FakeOptions();
  options.key.limits = "other";
  options.lengths_hold = [](const TextLengths& lengths,
                            absl::Span<const ImageSize> images) {
    EXPECT_FALSE(lengths.limited);
    EXPECT_EQ(lengths.label_tokens, 1000 * images.size());
    return lengths.text_tokens != 5;  // "three"
  };
  const IndexReport report = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 0);
  // "three", the limited one, and the two that are left out.
  EXPECT_EQ(reads_.texts, 4);
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.reused_samples, 6);
  EXPECT_EQ(report.reused_lengths, 2);
  // Without a rule, all texts are read.
  options.key.limits = "yet others";
  options.lengths_hold = nullptr;
  BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 0);
  EXPECT_EQ(reads_.texts, 6);
}

TEST_F(IndexReuseTest, ReadsOnlyNewAndChangedFiles) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  WriteTar(folder_ + "/data/docs-00.tar",
           {{"n.txt", "new"}, {"n.jpg", FakeImage(13, 14)}});
  IndexReport report = BuildBothWays(source, FakeOptions());
  EXPECT_EQ(reads_.images, 1);
  EXPECT_EQ(reads_.texts, 3);  // with the two that are left out
  EXPECT_EQ(report.reused_files, 2);
  EXPECT_EQ(report.reused_lengths, 4);
  WriteTar(folder_ + "/data/docs-0.tar", {{"o.txt", "other, and longer"}});
  report = BuildBothWays(source, FakeOptions());
  EXPECT_EQ(reads_.images, 0);
  EXPECT_EQ(reads_.texts, 2);
  EXPECT_EQ(report.reused_files, 2);
  std::filesystem::remove(folder_ + "/data/docs-1.tar");
  report = BuildBothWays(source, FakeOptions());
  EXPECT_EQ(reads_.texts, 0);
  EXPECT_EQ(report.samples, 2);
}

TEST_F(IndexReuseTest, AnotherKeyOfSizesReadsEverything) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  IndexOptions options = FakeOptions();
  options.key.sizes = "turned";
  const IndexReport report = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 7);
  EXPECT_EQ(reads_.texts, 6);
  EXPECT_EQ(report.reused_files, 0);
}

TEST_F(IndexReuseTest, ReusesLinesToo) {
  v1::Source source = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  source.add_media_root("media");
  WriteFile(folder_ + "/media/a.jpg", FakeImage(3, 4));
  WriteFile(folder_ + "/chat.jsonl",
            "{\"image\": \"a.jpg\"}\n\nnonsense\n{\"unmeasurable\": 1}\n{}\n");
  Build(source, FakeOptions());
  EXPECT_EQ(reads_.images, 1);
  IndexOptions options = FakeOptions();
  options.key.lengths = "other";
  const IndexReport report = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 0);
  EXPECT_EQ(reads_.texts, 3);
  EXPECT_EQ(report.samples, 2);
  EXPECT_EQ(report.known_bad, 0);
  ASSERT_EQ(report.bad.size(), 2);
  EXPECT_EQ(report.bad[0].key, "3");  // known
  EXPECT_EQ(report.bad[1].key, "4");  // measured again
  EXPECT_EQ(report.bad[1].offset, 29);
}

// An index of an older version, or one that was copied alone.
TEST_F(IndexReuseTest, CountsBadRecordsWithoutTheirList) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  std::filesystem::remove(BadRecordsPath(folder_ + kOldIndex));
  IndexOptions options = FakeOptions();
  options.key.lengths = "other";
  const IndexReport report = Build(source, options);
  EXPECT_EQ(report.known_bad, 1);
  ASSERT_EQ(report.bad.size(), 1);
  EXPECT_EQ(report.bad[0].key, "b");
}

TEST_F(IndexReuseTest, IgnoresADamagedOrOlderIndex) {
  const v1::Source source = WriteTars();
  for (const size_t at : {8, 300}) {
    Build(source, FakeOptions());
    std::string bytes = ReadFile(folder_ + kOldIndex);
    --bytes[at];  // the version; a record
    WriteFile(folder_ + kOldIndex, bytes);
    const IndexReport report = Build(source, FakeOptions());
    EXPECT_EQ(report.reused_files, 0);
    EXPECT_EQ(reads_.images, 7);
  }
}

// The images' headers are read again, for the engines, and no text is measured
// that need not be.
TEST_F(IndexReuseTest, TakesLengthsFromOlderIndexes) {
  v1::Source lines = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
  lines.add_media_root("media");
  WriteFile(folder_ + "/media/a.jpg", FakeImage(3, 4));
  WriteFile(folder_ + "/chat.jsonl",
            "{\"image\": \"a.jpg\"}\n{\"unmeasurable\": 1}\n{}\n");
  struct Case {
    v1::Source source;
    int images, left_out;
    uint64_t samples;
  };
  for (const Case& each : {Case{WriteTars(), 7, 2, 4}, Case{lines, 1, 1, 2}}) {
    Build(each.source, FakeOptions());
    WriteFile(folder_ + kOldIndex, OldIndexOf(ReadFile(folder_ + kOldIndex)));
    EXPECT_FALSE(CheckIndexFresh(each.source, folder_, FakeKey()).ok());
    const IndexReport report = BuildBothWays(each.source, FakeOptions());
    EXPECT_EQ(reads_.images, each.images);
    EXPECT_EQ(reads_.texts, each.left_out);
    EXPECT_EQ(report.samples, each.samples);
    EXPECT_EQ(report.reused_lengths, each.samples);
  }
  // Under other limits, only lengths that hold are taken.
  Build(lines, FakeOptions());
  WriteFile(folder_ + kOldIndex, OldIndexOf(ReadFile(folder_ + kOldIndex)));
  IndexOptions options = FakeOptions();
  options.key.limits = "other";
  options.lengths_hold = [](const TextLengths& lengths,
                            absl::Span<const ImageSize>) {
    return lengths.text_tokens != 2;  // "{}"
  };
  EXPECT_EQ(BuildBothWays(lines, options).reused_lengths, 1);
  EXPECT_EQ(reads_.texts, 2);
}

// Hashes are added to an index without them, and kept once they are there.
TEST_F(IndexReuseTest, AddsHashesAndKeepsThem) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  IndexOptions options = FakeOptions();
  options.hash = true;
  const IndexReport added = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 7);
  EXPECT_EQ(added.reused_files, 0);
  EXPECT_EQ(added.reused_lengths, added.samples);
  const auto index = *IndexFile::Open(folder_ + kOldIndex);
  ASSERT_TRUE(index->is_hashed());
  // Of a.0.jpg and a.1.jpg.
  EXPECT_THAT(
      index->media_hashes(0)->images,
      ElementsAre(Checksum(FakeImage(1, 2)), Checksum(FakeImage(3, 4))));
  const IndexReport kept = BuildBothWays(source, options);
  EXPECT_EQ(reads_.images, 0);
  EXPECT_EQ(kept.reused_files, 2);
}

// The size and the time are the same, but other bytes differ.
TEST_F(IndexReuseTest, RefusesChangedContentOfEqualSizeAndTime) {
  const v1::Source source = WriteTars();
  Build(source, FakeOptions());
  const std::string path = folder_ + "/data/docs-0.tar";
  const auto time = std::filesystem::last_write_time(path);
  std::string bytes = ReadFile(path);
  bytes[0] = 'z';  // the name; the checksum then differs
  WriteFile(path, bytes);
  std::filesystem::last_write_time(path, time);
  IndexOptions options = FakeOptions();
  options.key.lengths = "other";
  const absl::Status status = BuildIndex(source, folder_, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("data/docs-0.tar"));
  EXPECT_THAT(status.message(), HasSubstr("--rebuild"));
}

TEST_F(IndexReuseTest, AMeasureThatIsUnavailableEndsTheBuild) {
  const v1::Source source = WriteTars();
  IndexOptions options = FakeOptions();
  options.measure = [](const RawSample&, absl::Span<const ImageSize>) {
    return absl::StatusOr<TextLengths>(absl::UnavailableError("no tokenizer"));
  };
  EXPECT_EQ(BuildIndex(source, folder_, options).status().message(),
            "no tokenizer");
}

}  // namespace
}  // namespace ballast
