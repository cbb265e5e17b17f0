#include "server/data/open_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OpenSourceTest : public ::testing::Test {
 protected:
  void Build(const v1::Source& source) {
    const auto report = BuildIndex(source, folder_, FakeOptions());
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_TRUE(report->bad.empty()) << report->bad[0].reason;
  }

  std::unique_ptr<SampleSource> Open(const v1::Source& source) {
    auto opened = OpenSource(source, folder_, FakeKey());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  const std::string folder_ = TestFolder();
  const v1::Source tars_ =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "docs-*.tar");
  const v1::Source lines_ = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
};

TEST_F(OpenSourceTest, ReadsTars) {
  const std::string long_name(120, 'l');
  WriteFile(folder_ + "/docs-0.tar",
            TarEntry("x/a.json", R"({"a": 1})") +
                TarEntry("x/a.1.jpg", FakeImage(3, 4)) +
                TarEntry("x/a.cls", "7") +
                TarEntry("x/a.0.jpg", FakeImage(1, 2)) +
                TarEntry("L", long_name + ".txt", 'L') +
                TarEntry("cut", "hello") + TarEnd());
  Build(tars_);
  const auto source = Open(tars_);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->index().size(), 2);
  auto sample = ReadSample(*source, 0, {});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->name, "docs-0.tar: x/a");
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kConversation);
  EXPECT_EQ(sample->text, R"({"a": 1})");
  EXPECT_THAT(Images(*sample), ElementsAre(FakeImage(1, 2), FakeImage(3, 4)));
  sample = ReadSample(*source, 1, {});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->name, "docs-0.tar: " + long_name);
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kPlain);
  EXPECT_EQ(sample->text, "hello");
  sample = ReadSample(*source, 0, {.text = true, .images = false});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_THAT(Images(*sample), IsEmpty());
  EXPECT_EQ(sample->text, R"({"a": 1})");
  sample = ReadSample(*source, 0, {.text = false, .images = true});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->text, "");
  EXPECT_EQ(Images(*sample).size(), 2);
  const absl::Status none = ReadSample(*source, 2, {}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(none.message()), HasSubstr("no sample 2 of 2"));
}

TEST_F(OpenSourceTest, ReadsJsonl) {
  WriteFile(folder_ + "/m/a.jpg", FakeImage(1, 2));
  WriteFile(folder_ + "/m/b.jpg", FakeImage(3, 4));
  const std::string line = R"({"image": ["m/b.jpg", "m/a.jpg"]})";
  WriteFile(folder_ + "/chat.jsonl", "{}\n\n" + line + "\r\n");
  Build(lines_);
  const auto source = Open(lines_);
  ASSERT_NE(source, nullptr);
  auto sample = ReadSample(*source, 1, {});
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->name, "chat.jsonl:3");
  EXPECT_EQ(sample->text, line);
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kConversation);
  EXPECT_THAT(Images(*sample), ElementsAre(FakeImage(3, 4), FakeImage(1, 2)));
  // From memory it is the same, if the file system can tell what is there.
  const auto in_memory = ReadSample(*source, 1, {.from = ReadFrom::kMemory});
  if (in_memory.ok()) {
    EXPECT_EQ(in_memory->text, line);
    EXPECT_EQ(Images(*in_memory), Images(*sample));
  } else {
    EXPECT_EQ(in_memory.status().code(), absl::StatusCode::kAborted);
  }
  // Without images, their files are not opened.
  std::filesystem::remove(folder_ + "/m/a.jpg");
  EXPECT_TRUE(ReadSample(*source, 1, {.text = true, .images = false}).ok());
  const absl::Status gone = ReadSample(*source, 1, {}).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()),
              HasSubstr("chat.jsonl: sample 1 at byte 4: line 3: "));
  EXPECT_THAT(std::string(gone.message()), HasSubstr("m/a.jpg"));
}

TEST_F(OpenSourceTest, RequiresAnIndex) {
  const auto message = [&] {
    const absl::Status status = OpenSource(lines_, folder_, FakeKey()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("ballast-server index --config F"));
    return std::string(status.message());
  };
  WriteFile(folder_ + "/chat.jsonl", "{}\n");
  EXPECT_THAT(message(), HasSubstr("docs.index: cannot open"));
  Build(lines_);
  EXPECT_NE(Open(lines_), nullptr);
  WriteFile(folder_ + "/chat.jsonl", "{}\n{}\n");
  EXPECT_THAT(message(), HasSubstr("stale index"));
  WriteFile(folder_ + "/index/docs.index", "nonsense");
  EXPECT_THAT(message(), HasSubstr("damaged or not an index"));
  std::filesystem::remove(folder_ + "/chat.jsonl");
  EXPECT_EQ(OpenSource(lines_, folder_, FakeKey()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(
      OpenSource(MakeSource(v1::Source::FORMAT_MOCK, ""), folder_, FakeKey())
          .status()
          .code(),
      absl::StatusCode::kUnimplemented);
}

// Whatever the bytes of another file look like, they say nothing of the sample:
// the indexed ones may come back.
TEST_F(OpenSourceTest, NothingInAFileThatChangedIsADataFault) {
  const auto error = [&](const SampleSource& source) {
    const absl::Status status = source.Read(0, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    return std::string(status.message());
  };
  const std::string tar = folder_ + "/docs-0.tar";
  WriteTar(tar, {{"a.txt", "x"}, {"a.jpg", FakeImage(1, 1)}});
  Build(tars_);
  auto source = Open(tars_);
  ASSERT_NE(source, nullptr);
  WriteTar(tar, {{"a.txt", "x"}});
  EXPECT_EQ(
      error(*source),
      "docs-0.tar: sample 0 at byte 0: the file has changed since it was "
      "indexed: it has 2048 bytes, and had 3072; restore it, or index the "
      "source again and restart the servers");

  // The file is opened before it is overwritten in place.
  WriteTar(tar, {{"a.txt", "x"}, {"a.jpg", FakeImage(1, 1)}});
  Build(tars_);
  source = Open(tars_);
  ASSERT_TRUE(ReadSample(*source, 0, {}).ok());
  const auto time = std::filesystem::last_write_time(tar);
  for (const auto& members :
       std::vector<std::vector<std::pair<std::string, std::string>>>{
           {{"b.txt", "x"}, {"b.jpg", FakeImage(1, 1)}},
           {{"a.txt", "x"}, {"a.cls", FakeImage(1, 1)}},
           {{"a.txt", "x"}, {"a.1.jpg", FakeImage(1, 1)}},
           // Images are identified by their headers alone.
           {{"a.txt", "x"}, {"a.jpg", FakeImage(1, 1)}}}) {
    WriteTar(tar, members);
    std::filesystem::last_write_time(tar, time + std::chrono::seconds(1));
    EXPECT_THAT(error(*source), HasSubstr("it has another modification time"));
  }
  EXPECT_EQ(ReadSample(*source, 0, {.images = false})->text, "x");
  WriteFile(tar, "short");
  EXPECT_THAT(error(*source), HasSubstr("it has 5 bytes, and had 3072"));
  // The indexed bytes and time come back.
  WriteTar(tar, {{"a.txt", "x"}, {"a.jpg", FakeImage(1, 1)}});
  std::filesystem::last_write_time(tar, time);
  EXPECT_TRUE(ReadSample(*source, 0).ok());

  WriteFile(folder_ + "/chat.jsonl", "{\"a\": 1}\n");
  Build(lines_);
  source = Open(lines_);
  ASSERT_TRUE(ReadSample(*source, 0, {}).ok());
  WriteFile(folder_ + "/chat.jsonl", "{\"a\": 2, \"b\": 3}\n");
  EXPECT_THAT(error(*source), HasSubstr("chat.jsonl: sample 0 at byte 0: the "
                                        "file has changed"));
}

// The file's time stays as before, as after `rsync --times`.
TEST_F(OpenSourceTest, FindsOtherContentOfEqualLength) {
  const std::string tar = folder_ + "/docs-0.tar";
  const auto write = [&](const std::string& first, const std::string& second,
                         const std::string& image) {
    WriteTar(tar, {{"a.txt", first}, {"b.txt", second}, {"b.jpg", image}});
    std::filesystem::last_write_time(tar, {});
  };
  write("one", "two", FakeImage(3, 4, 10) + "pixels");
  Build(tars_);
  const auto source = Open(tars_);
  ASSERT_NE(source, nullptr);
  const ReadParts text = {.text = true, .images = false};
  const ReadParts images = {.text = false, .images = true};
  ASSERT_TRUE(ReadSample(*source, 0).ok());
  ASSERT_TRUE(ReadSample(*source, 1).ok());

  write("two", "one", FakeImage(3, 4, 10) + "pixels");
  for (const uint64_t ordinal : {0, 1}) {
    for (const ReadParts& parts : {text, images}) {
      const auto read = source->Read(ordinal, parts);
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_FALSE(read->ok());
      EXPECT_THAT(read->fault().reason(),
                  HasSubstr("its text is not the index's; the file has "
                            "changed since it was indexed"));
    }
  }
  write("one", "two", FakeImage(3, 4, 10) + "Pixels");
  EXPECT_TRUE(ReadSample(*source, 1, text).ok());
  const auto read = source->Read(1, images);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_FALSE(read->ok());
  EXPECT_THAT(read->fault().reason(), HasSubstr("header of an image"));
  // A repaired file is read again.
  write("one", "two", FakeImage(3, 4, 10) + "pixels");
  EXPECT_TRUE(ReadSample(*source, 1).ok());
}

// An index of unchanged lines is taken over with the sizes that it has: only
// the whole of it, built anew, knows the other image.
TEST_F(OpenSourceTest, SaysHowNamedMediaAreIndexedAnew) {
  WriteFile(folder_ + "/a.jpg", FakeImage(3, 4));
  WriteFile(folder_ + "/chat.jsonl", R"({"image": "a.jpg"})");
  Build(lines_);
  const auto time = std::filesystem::last_write_time(folder_ + "/a.jpg");
  WriteFile(folder_ + "/a.jpg", FakeImage(5, 6));
  std::filesystem::last_write_time(folder_ + "/a.jpg", time);
  Build(lines_);
  const auto read = Open(lines_)->Read(0, {});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_FALSE(read->ok());
  EXPECT_THAT(read->fault().reason(), HasSubstr("anew by --rebuild"));
  IndexOptions options = FakeOptions();
  options.reuse = false;
  ASSERT_TRUE(BuildIndex(lines_, folder_, options).ok());
  const auto source = Open(lines_);
  EXPECT_TRUE(ReadSample(*source, 0).ok());
  EXPECT_EQ(source->index().sample(0)->media.images()[0].width, 5u);
}

// A named image that is copied again in place is short, then whole, then has
// its time again. Of its time the index knows that of the latest alone.
TEST_F(OpenSourceTest, NamedMediaThatWereModifiedLaterAreNoDataFault) {
  const std::string path = folder_ + "/b.jpg";
  WriteFile(folder_ + "/a.jpg", FakeImage(3, 4));
  WriteFile(path, FakeImage(5, 6));
  const auto latest = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(folder_ + "/a.jpg",
                                   latest - std::chrono::seconds(9));
  WriteFile(folder_ + "/chat.jsonl",
            "{\"image\": \"a.jpg\"}\n"
            "{\"image\": \"b.jpg\"}\n");
  Build(lines_);
  const auto source = Open(lines_);
  ASSERT_TRUE(ReadSample(*source, 1).ok());
  WriteFile(path, "sh");
  std::filesystem::last_write_time(path, latest + std::chrono::seconds(1));
  const auto during = source->Read(1, {});
  EXPECT_EQ(during.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(during.status().message()),
              HasSubstr("line 2: named media have changed since they were "
                        "indexed"));
  EXPECT_TRUE(ReadSample(*source, 0).ok());
  // The indexed bytes are read whatever their time, as a copy's.
  WriteFile(path, FakeImage(5, 6));
  std::filesystem::last_write_time(path, latest + std::chrono::seconds(1));
  const auto copied = ReadSample(*source, 1);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_GT(copied->media_modified, absl::InfinitePast());
  // Also a file of the same length and beginning, an hour older or renamed to
  // its place.
  std::filesystem::last_write_time(path, latest - std::chrono::hours(1));
  EXPECT_EQ(ReadSample(*source, 1)->media_modified, absl::InfinitePast());
  WriteFile(folder_ + "/new.jpg", FakeImage(5, 6));
  std::filesystem::rename(folder_ + "/new.jpg", path);
  EXPECT_TRUE(ReadSample(*source, 1).ok());
  // Damage that keeps the time is damage.
  WriteFile(path, "sh");
  std::filesystem::last_write_time(path, latest);
  const auto damaged = source->Read(1, {});
  ASSERT_TRUE(damaged.ok()) << damaged.status();
  EXPECT_FALSE(damaged->ok());
}

// Servers whose files hold other text of equal length refuse each other.
TEST_F(OpenSourceTest, TheDigestCoversContent) {
  const std::string tar = folder_ + "/docs-0.tar";
  const auto digest = [&](const std::string& first, const std::string& second,
                          const std::string& image) {
    WriteTar(tar, {{"a.txt", first}, {"b.txt", second}, {"b.jpg", image}});
    Build(tars_);
    return Open(tars_)->index().digest();
  };
  const std::string image = FakeImage(3, 4);
  const std::string original = digest("one", "two", image);
  EXPECT_EQ(digest("one", "two", image), original);
  EXPECT_NE(digest("two", "one", image), original);
  EXPECT_NE(digest("one", "two", image + "x"), original);
  EXPECT_NE(digest("one", "two", FakeImage(3, 4, 1)), original);
  WriteTar(tar, {{"a.txt", "one"}, {"c.txt", "two"}, {"c.jpg", image}});
  Build(tars_);
  EXPECT_NE(Open(tars_)->index().digest(), original);
}

TEST_F(OpenSourceTest, ReadsNothingOutsideTheRootAfterAChange) {
  WriteFile(folder_ + "/data/m/a.jpg", FakeImage(1, 2));
  WriteFile(folder_ + "/secret.jpg", FakeImage(1, 2));
  WriteFile(folder_ + "/chat.jsonl", R"({"image": "m/a.jpg"})");
  v1::Source source = lines_;
  source.add_media_root(folder_ + "/data");
  Build(source);
  const auto opened = Open(source);
  ASSERT_NE(opened, nullptr);
  ASSERT_TRUE(ReadSample(*opened, 0, {}).ok());
  // A link is no byte of the sample: another server's may lead inside.
  const auto refusal = [&] {
    const absl::Status status = opened->Read(0, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  // The file becomes a link, and then a folder above it does.
  std::filesystem::remove(folder_ + "/data/m/a.jpg");
  std::filesystem::create_symlink("../../secret.jpg",
                                  folder_ + "/data/m/a.jpg");
  EXPECT_THAT(refusal(), HasSubstr("path \"m/a.jpg\" leads outside "));
  std::filesystem::remove_all(folder_ + "/data/m");
  WriteFile(folder_ + "/elsewhere/a.jpg", FakeImage(1, 2));
  std::filesystem::create_symlink(folder_ + "/elsewhere", folder_ + "/data/m");
  EXPECT_THAT(refusal(), HasSubstr("leads outside "));
  // Then it becomes a device, which is no regular file.
  std::filesystem::remove(folder_ + "/data/m");
  std::filesystem::create_directory(folder_ + "/data/m");
  std::filesystem::create_symlink("/dev/zero", folder_ + "/data/m/a.jpg");
  EXPECT_THAT(refusal(), HasSubstr("not a regular file"));
}

TEST(MissingShardsTest, AreCountedAndNamed) {
  EXPECT_EQ(
      MissingShards({"a/t-00000-of-00002.parquet", "a/t-00001-of-00002.parquet",
                     "a/u.parquet", "of-5.tar", "x-of-3.tar"}),
      "");
  // From 1 on.
  EXPECT_EQ(MissingShards({"t-1-of-2.tar", "t-2-of-2.tar"}), "");
  // Two sets, in two folders.
  const std::string said =
      MissingShards({"a/t-00000-of-00003.tar", "a/t-00002-of-00003.tar",
                     "b/t-00001-of-00010.tar"});
  EXPECT_THAT(said, HasSubstr("10 of 13 files are not there: "
                              "t-00001-of-00003.tar, t-00000-of-00010.tar, "
                              "t-00002-of-00010.tar, …; download"));
  // A number that no set has files for.
  EXPECT_THAT(MissingShards({"t-0-of-4000000000.tar"}),
              HasSubstr("3999999999 of 4000000000 "));
}

// No file is ever opened by a member's name. Members with such names, or that
// are links, make their samples bad nevertheless.
TEST_F(OpenSourceTest, NeverOpensAMembersName) {
  WriteFile(folder_ + "/secret.jpg", FakeImage(9, 9));
  WriteFile(folder_ + "/docs-0.tar",
            TarEntry("good.txt", "one") + TarEntry("../secret.txt", "two") +
                TarEntry("../secret.jpg", FakeImage(1, 2)) +
                TarEntry("/etc/passwd.txt", "three") +
                TarEntry("a/../../b.txt", "four") +
                TarEntry("link.txt", "five") + TarEntry("link.jpg", "", '2') +
                TarEnd());
  const auto report = BuildIndex(tars_, folder_, FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->bad.size(), 4);
  EXPECT_THAT(report->bad[0].reason,
              HasSubstr("path \"../secret.txt\" holds \"..\""));
  EXPECT_THAT(report->bad[1].reason, HasSubstr("path \"/etc/passwd.txt\""));
  EXPECT_THAT(report->bad[2].reason,
              HasSubstr("path \"a/../../b.txt\" holds \"..\""));
  EXPECT_THAT(report->bad[3].reason, HasSubstr("is not a file"));
  const auto source = Open(tars_);
  ASSERT_NE(source, nullptr);
  ASSERT_EQ(source->index().size(), 1);
  EXPECT_EQ(ReadSample(*source, 0, {})->text, "one");
}

TEST_F(OpenSourceTest, KeepsFewFilesOpen) {
  constexpr int kFiles = 60;
  constexpr int kOpen = 25;
  for (int i = 0; i < kFiles; ++i) {
    WriteTar(absl::StrCat(folder_, "/docs-", 1000 + i, ".tar"),
             {{"a.txt", absl::StrCat("text ", i)}});
  }
  Build(tars_);
  const auto source = *OpenSource(tars_, folder_, FakeKey(),
                                  std::make_shared<OpenFileCache>(kOpen));
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         {});
  };
  const auto before = open_files();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kFiles; ++i) {
      const auto sample = ReadSample(*source, i, {});
      ASSERT_TRUE(sample.ok()) << sample.status();
      EXPECT_EQ(sample->text, absl::StrCat("text ", i));
    }
  }
  EXPECT_EQ(open_files() - before, kOpen);
}

TEST_F(OpenSourceTest, ReadsFromManyThreads) {
  constexpr int kFiles = 60;
  for (int i = 0; i < kFiles; ++i) {
    const std::string image = FakeImage(i + 1, 1);
    WriteTar(absl::StrCat(folder_, "/docs-", 1000 + i, ".tar"),
             {{"a.txt", absl::StrCat("text ", i)}, {"a.jpg", image}});
  }
  Build(tars_);
  // A cache smaller than the number of threads.
  const auto source = *OpenSource(tars_, folder_, FakeKey(),
                                  std::make_shared<OpenFileCache>(3));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kFiles; ++i) {
        const int ordinal = (i + t * 7) % kFiles;
        const auto sample = ReadSample(*source, ordinal, {});
        if (!sample.ok() || sample->text != absl::StrCat("text ", ordinal) ||
            Images(*sample)[0] != FakeImage(ordinal + 1, 1)) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace

}  // namespace ballast
