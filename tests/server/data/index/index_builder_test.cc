#include "server/data/index/index_builder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/sample/index_format.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// "FILE@OFFSET KEY: REASON"
std::vector<std::string> Lines(const std::vector<BadSample>& bad) {
  std::vector<std::string> lines;
  for (const BadSample& sample : bad) {
    lines.push_back(absl::StrCat(sample.file, "@", sample.offset, " ",
                                 sample.key, ": ", sample.reason));
  }
  return lines;
}

class IndexBuilderTest : public ::testing::Test {
 protected:
  IndexReport Build(const v1::Source& source) {
    const auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : IndexReport();
  }

  std::shared_ptr<const IndexFile> Open(const v1::Source& source) {
    const auto index = OpenFreshIndex(source, folder_, FakeKey());
    EXPECT_TRUE(index.ok()) << index.status();
    return index.ok() ? *index : nullptr;
  }

  std::string Stale(const v1::Source& source) {
    const absl::Status status = CheckIndexFresh(source, folder_, FakeKey());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  const std::string folder_ = TestFolder();
  const v1::Source tars_ =
      MakeSource(v1::Source::FORMAT_WEBDATASET, "data/docs-*.tar");
  const v1::Source lines_ = MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl");
};

TEST_F(IndexBuilderTest, IndexesTars) {
  std::filesystem::create_directories(folder_ + "/data");
  WriteTar(folder_ + "/data/docs-0.tar", {{"a.json", R"({"a": 1})"},
                                          {"a.1.jpg", FakeImage(3, 4)},
                                          {"a.0.jpg", FakeImage(1, 2, 70'000)},
                                          {"a.cls", "7"},
                                          {"b.txt", "hello"},
                                          {"c.txt", "skip me"}});
  WriteTar(folder_ + "/data/docs-1.tar",
           {{"a.txt", "the same key in another file is another sample"},
            {"b.png", FakeImage(5, 6)},
            {"b.txt", ""}});
  const IndexReport report = Build(tars_);
  EXPECT_THAT(Lines(report.bad), IsEmpty());
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.media[MediumKind::kImage], 3);
  EXPECT_EQ(report.skipped, 1);
  EXPECT_THAT(report.ignored, ElementsAre(Pair("cls", 1)));
  ASSERT_EQ(report.unlearnt.size(), 1u);
  const auto& [cause, unlearnt] = *report.unlearnt.begin();
  EXPECT_EQ(cause, "no images");
  EXPECT_EQ(unlearnt.count, 2);
  EXPECT_THAT(unlearnt.first,
              ::testing::StartsWith("data/docs-0.tar at byte "));
  const auto index = Open(tars_);
  ASSERT_NE(index, nullptr);
  ASSERT_EQ(index->size(), 4);
  const IndexedSample first = *index->sample(0);
  EXPECT_EQ(first.text_tokens, 8);
  EXPECT_EQ(first.label_tokens, 2000);
  ASSERT_EQ(first.media.images().size(), 2);
  EXPECT_EQ(first.media.images()[0].width, 1);
  EXPECT_EQ(first.media.images()[0].height, 2);
  EXPECT_EQ(first.media.images()[1].width, 3);
  EXPECT_EQ(index->sample(1)->text_tokens, 5);
  EXPECT_TRUE(index->sample(1)->media.images().empty());
  EXPECT_EQ(index->sample(3)->text_tokens, 0);
  EXPECT_EQ(index->sample(3)->media.images()[0].height, 6);
  EXPECT_EQ(index->file_name(0), "data/docs-0.tar");
  EXPECT_EQ(index->file_name(1), "data/docs-1.tar");
}

TEST_F(IndexBuilderTest, ListsEveryBadSampleOfTars) {
  std::filesystem::create_directories(folder_ + "/data");
  WriteTar(folder_ + "/data/docs-0.tar", {{"a.json", "{"},
                                          {"b.json", R"({"video": "b.mp4"})"},
                                          {"c.txt", "see <video>"},
                                          {"d.txt", "x"},
                                          {"d.jpg", "not an image"},
                                          {"e.txt", "x"},
                                          {"e.jpg", "xxxx"},
                                          {"f.txt", "unmeasurable"},
                                          {"g.jpg", FakeImage(1, 1)},
                                          {"h.txt", "good"},
                                          {"a.txt", "again"},
                                          {"i.mov", "x"}});
  // The tar is damaged in its third header; the sample before it has as many
  // members as the one before that.
  std::string tar = TarEntry("a.txt", "good") + TarEntry("b.txt", "x") +
                    TarEntry("c.txt", "x") + TarEnd();
  tar[2048] = 'z';
  WriteFile(folder_ + "/data/docs-1.tar", tar);
  WriteFile(folder_ + "/data/docs-2.tar", "");
  WriteTar(folder_ + "/data/docs-3.tar", {{"a.txt", "good"}});
  const IndexReport report = Build(tars_);
  EXPECT_EQ(report.samples, 4);
  const std::vector<std::string> lines = Lines(report.bad);
  ASSERT_EQ(lines.size(), 11) << ::testing::PrintToString(lines);
  EXPECT_THAT(lines[0], HasSubstr("data/docs-0.tar@0 a: a.json: not JSON: "));
  EXPECT_EQ(lines[1],
            "data/docs-0.tar@1024 b: b.json: video is not supported: key "
            "`video`");
  EXPECT_EQ(lines[2],
            "data/docs-0.tar@2048 c: c.txt: video is not supported: mark "
            "`<video>`");
  EXPECT_EQ(lines[3], "data/docs-0.tar@3072 d: d.jpg: no image");
  EXPECT_EQ(lines[4],
            "data/docs-0.tar@5120 e: e.jpg: cut inside its header: no mark");
  EXPECT_EQ(lines[5], "data/docs-0.tar@7168 f: unmeasurable");
  EXPECT_EQ(lines[6],
            "data/docs-0.tar@8192 g: no text; wanted a .json, .txt, "
            ".tokens.bin or .tokens.json member");
  EXPECT_EQ(lines[7],
            "data/docs-0.tar@10240 a: duplicate key; its members do not stand "
            "together");
  EXPECT_EQ(lines[8],
            "data/docs-0.tar@11264 i: no text; wanted a .json, .txt, "
            ".tokens.bin or .tokens.json member");
  EXPECT_THAT(lines[9],
              HasSubstr("data/docs-1.tar@2048 : tar: header with a checksum"));
  EXPECT_THAT(lines[9], HasSubstr("; not read: 2048 of the file's 4096 bytes"));
  EXPECT_EQ(lines[10],
            "data/docs-2.tar@0 : tar: ends without an end mark; was it cut?; "
            "not read: 0 of the file's 0 bytes");
}

// A sample whose bytes are all there is indexed wherever the tar is cut, but
// for the first, which nothing can be compared with.
TEST_F(IndexBuilderTest, KeepsEveryWholeSampleOfACutTar) {
  std::filesystem::create_directories(folder_ + "/data");
  std::string tar;
  for (const std::string key : {"a", "b", "c", "d"}) {
    tar +=
        TarEntry(key + ".txt", key) + TarEntry(key + ".jpg", FakeImage(1, 2));
  }
  constexpr size_t kSample = 4 * 512;
  ASSERT_EQ(tar.size(), 4 * kSample);
  ASSERT_LE(FakeImage(1, 2).size(), 256u);
  for (size_t cut = 256; cut <= tar.size(); cut += 256) {
    WriteFile(folder_ + "/data/docs-0.tar", tar.substr(0, cut));
    const IndexReport report = Build(tars_);
    // The padding of a member may be cut off: its text is whole after 768 bytes
    // of a sample, its image after 1792. `begun` samples have a whole
    // member.
    const size_t inside = cut % kSample;
    const size_t begun = cut / kSample + (inside >= 768 ? 1 : 0);
    const bool is_whole = inside < 768 || inside >= 1792;
    const bool kept = begun >= 2 && is_whole;
    EXPECT_EQ(report.samples, begun == 0 ? 0 : begun - (kept ? 0 : 1)) << cut;
    const std::vector<std::string> lines = Lines(report.bad);
    ASSERT_EQ(lines.size(), 1u) << cut;
    EXPECT_THAT(lines[0],
                HasSubstr(absl::StrCat(" of the file's ", cut, " bytes")));
    EXPECT_EQ(absl::StrContains(lines[0], "the sample before, which may lack"),
              begun > 0 && !kept)
        << lines[0];
  }
}

// Whole files, wherever they are: beyond the 4096 bytes that a header takes.
TEST_F(IndexBuilderTest, HashesWholeFiles) {
  std::filesystem::create_directories(folder_ + "/data");
  const std::string large = FakeImage(1, 2, 3 << 20) + "pixels";
  const std::string small = FakeImage(3, 4);
  WriteTar(folder_ + "/data/docs-0.tar",
           {{"a.txt", "x"}, {"a.0.jpg", large}, {"a.1.jpg", small}});
  WriteFile(folder_ + "/large.jpg", large);
  WriteFile(folder_ + "/small.jpg", small);
  WriteFile(folder_ + "/chat.jsonl",
            R"({"image": ["large.jpg", "small.jpg"]})");
  IndexOptions options = FakeOptions();
  options.hash = true;
  for (const v1::Source& source : {tars_, lines_}) {
    ASSERT_TRUE(BuildIndex(source, folder_, options).ok());
    const auto index = Open(source);
    ASSERT_NE(index, nullptr);
    EXPECT_TRUE(index->is_hashed());
    EXPECT_THAT(index->media_hashes(0)->images,
                ElementsAre(Checksum(large), Checksum(small)));
  }
}

TEST_F(IndexBuilderTest, IndexesJsonl) {
  v1::Source source = lines_;
  source.add_media_root("media");
  WriteFile(folder_ + "/media/a.jpg", FakeImage(3, 4, 100'000));
  WriteFile(folder_ + "/media/sub/b.jpg", FakeImage(5, 6));
  WriteFile(folder_ + "/outside.jpg", FakeImage(7, 8));
  std::filesystem::create_symlink("../outside.jpg",
                                  folder_ + "/media/link.jpg");
  WriteFile(folder_ + "/media/bad.jpg", "bad");
  WriteFile(folder_ + "/chat.jsonl",
            "{\"image\": \"a.jpg\"}\r\n"                 // 0
            "\n"                                         // 20
            "{\"image\": [\"sub/b.jpg\", \"a.jpg\"]}\n"  // 21
            "  \t\r\n"                                   // 55
            "nonsense\n"                                 // 60
            "{\"image\": \"none.jpg\"}\n"                // 69
            "{\"image\": \"link.jpg\"}\n"                // 91
            "{\"image\": \"../outside.jpg\"}\n"          // 113
            "{\"image\": \"bad.jpg\"}\n"                 // 141
            "{\"video\": \"a.mp4\"}\n"                   // 162
            "{\"unmeasurable\": 1}\n"                    // 181
            "{\"skip\": 1}\n"                            // 201
            "{}");                                       // 213
  const IndexReport report = Build(source);
  EXPECT_EQ(report.samples, 3);
  EXPECT_EQ(report.media[MediumKind::kImage], 3);
  EXPECT_EQ(report.skipped, 1);
  const std::vector<std::string> lines = Lines(report.bad);
  ASSERT_EQ(lines.size(), 7) << ::testing::PrintToString(lines);
  EXPECT_THAT(lines[0], HasSubstr("chat.jsonl@60 5: not JSON: "));
  EXPECT_THAT(lines[1], HasSubstr("chat.jsonl@69 6: "));
  EXPECT_THAT(lines[1], HasSubstr("/media/none.jpg: cannot open"));
  EXPECT_THAT(lines[2],
              HasSubstr("chat.jsonl@91 7: path \"link.jpg\" leads outside "));
  EXPECT_THAT(
      lines[3],
      HasSubstr("chat.jsonl@113 8: path \"../outside.jpg\" leads outside "));
  EXPECT_THAT(lines[4], HasSubstr("chat.jsonl@141 9: "));
  EXPECT_THAT(lines[4], HasSubstr("/media/bad.jpg: no image"));
  EXPECT_THAT(lines[5], HasSubstr("chat.jsonl@162 10: "));
  EXPECT_THAT(lines[5], HasSubstr("/media/a.mp4: cannot open"));
  EXPECT_EQ(lines[6], "chat.jsonl@181 11: unmeasurable");
  const auto index = Open(source);
  ASSERT_NE(index, nullptr);
  ASSERT_EQ(index->size(), 3);
  EXPECT_EQ(index->sample(0)->text_tokens, 18);
  EXPECT_EQ(index->sample(1)->media.images()[0].width, 5);
  EXPECT_EQ(index->sample(1)->media.images()[1].width, 3);
  EXPECT_EQ(index->record(2).line, 13);
}

TEST_F(IndexBuilderTest, KeepsTheFirstTokensOfPairs) {
  const std::string pair =
      R"({"prompt": "q", "chosen": "yes", "rejected": "no"})";
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "q"}]})";
  WriteFile(folder_ + "/chat.jsonl", absl::StrCat(pair, "\n", chat, "\n"));
  v1::Source source = lines_;
  source.set_pairs(true);
  IndexOptions options = FakeOptions();
  options.pairs = true;
  options.reuse = false;
  uint32_t first = 13;
  options.measure = [&](const RawSample& sample, absl::Span<const ImageSize>) {
    EXPECT_EQ(sample.text_format, RawSample::TextFormat::kPair);
    TextLengths lengths;
    lengths.text_tokens = 30;
    lengths.first_text_tokens = first;
    return lengths;
  };
  std::string digest;
  for (const uint32_t tokens : {13u, (1u << 24) - 1}) {
    first = tokens;
    const auto report = BuildIndex(source, folder_, options);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->bad.size(), 1u);
    EXPECT_THAT(report->bad[0].reason, HasSubstr("no preference pair"));
    const auto index = Open(source);
    ASSERT_NE(index, nullptr);
    ASSERT_EQ(index->size(), 1u);
    EXPECT_EQ(index->sample(0)->first_text_tokens, tokens);
    EXPECT_NE(index->digest(), digest);
    digest = index->digest();
  }
  // Another source takes the conversation alone.
  options = FakeOptions();
  const auto report = BuildIndex(lines_, folder_, options);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason, HasSubstr("makes this a preference pair"));
}

// The first bytes of what `gzip`, `zstd`, `xz`, `bzip2` and others write.
TEST_F(IndexBuilderTest, RefusesCompressedFiles) {
  const struct {
    std::string name;
    std::string first;
    const char* unpack;
  } kCompressed[] = {
      {"gzip", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10), "gzip -dc <"},
      {"zstd", "\x28\xb5\x2f\xfd\x24\x00", "zstd -dc <"},
      {"zstd", std::string("\x50\x2a\x4d\x18\x04\0\0\0", 8), "zstd -dc <"},
      {"xz", std::string("\xfd\x37zXZ\0\0\x04", 8), "xz -dc <"},
      {"lz4", "\x04\x22\x4d\x18\x64", "lz4 -dc <"},
      {"zip", "PK\x03\x04", "unzip -p"},
      {"bzip2", "BZh9\x31\x41\x59\x26\x53\x59", "bzip2 -dc <"},
      // Of an empty file.
      {"bzip2", "BZh9\x17\x72\x45\x38\x50\x90", "bzip2 -dc <"},
  };
  for (const auto& [name, first, unpack] : kCompressed) {
    WriteFile(folder_ + "/data/docs-1.tar", first);
    WriteFile(folder_ + "/chat.jsonl", first + "\n");
    for (const v1::Source& source : {tars_, lines_}) {
      const auto report = BuildIndex(source, folder_, FakeOptions());
      EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
      const char* const file = source.format() == v1::Source::FORMAT_JSONL
                                   ? "chat.jsonl"
                                   : "data/docs-1.tar";
      EXPECT_THAT(report.status().message(),
                  HasSubstr(absl::StrCat(
                      file, ": compressed by ", name,
                      "; there are no offsets to read samples at: unpack it, `",
                      unpack, " ", file, " > PLAIN`")));
    }
  }
  // Text alone.
  WriteFile(folder_ + "/chat.jsonl", "BZh91AY");
  EXPECT_EQ(Build(lines_).bad.size(), 1u);
}

TEST_F(IndexBuilderTest, ListsATooLongLineAsBad) {
  std::string line = "{\"a\": \"";
  line.append(64 << 20, 'x');
  line += "\"}\n{}\n";
  WriteFile(folder_ + "/chat.jsonl", line);
  const IndexReport report = Build(lines_);
  EXPECT_EQ(report.samples, 1);
  EXPECT_THAT(Lines(report.bad),
              ElementsAre("chat.jsonl@0 1: object of 67108873 bytes, wanted at "
                          "most 67108864"));
}

TEST_F(IndexBuilderTest, ThreadsDoNotChangeTheIndex) {
  std::filesystem::create_directories(folder_ + "/data");
  for (int file = 0; file < 8; ++file) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 20; ++i) {
      const std::string key = absl::StrCat("s", i % 19);
      members.emplace_back(key + ".txt", std::string(file * 20 + i, 't'));
      members.emplace_back(key + ".jpg", FakeImage(file + 1, i + 1));
    }
    WriteTar(absl::StrCat(folder_, "/data/docs-", file, ".tar"), members);
  }
  const IndexReport one = Build(tars_);
  const std::string bytes = ReadFile(folder_ + "/index/docs.index");
  IndexOptions options = FakeOptions();
  options.threads = 4;
  options.reuse = false;
  std::vector<IndexProgress> calls;
  options.progress = [&](const IndexProgress& now) { calls.push_back(now); };
  const auto four = BuildIndex(tars_, folder_, options);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(ReadFile(folder_ + "/index/docs.index"), bytes);
  EXPECT_EQ(Lines(four->bad), Lines(one.bad));
  EXPECT_EQ(one.bad.size(), 8);
  EXPECT_EQ(one.samples, 8 * 19);
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls.back().bytes_done, calls.back().bytes_total);
  EXPECT_EQ(calls.back().samples, 8 * 19);
  EXPECT_EQ(calls.back().bad, 8);
}

TEST_F(IndexBuilderTest, AFailedBuildKeepsTheOldIndex) {
  WriteFile(folder_ + "/chat.jsonl", "{}\n");
  Build(lines_);
  const std::string bytes = ReadFile(folder_ + "/index/docs.index");
  // The disk fails in the middle of the build.
  IndexOptions options = FakeOptions();
  WriteFile(folder_ + "/chat.jsonl", "{\"image\": \"a.jpg\"}\n");
  WriteFile(folder_ + "/a.jpg", FakeImage(1, 1));
  options.read_image_size = [](absl::string_view) {
    return absl::UnavailableError("disk");
  };
  EXPECT_EQ(BuildIndex(lines_, folder_, options).status().code(),
            absl::StatusCode::kUnavailable);
  // The file changes in the middle of the build.
  options = FakeOptions();
  options.measure = [&](const RawSample&, absl::Span<const ImageSize>) {
    WriteFile(folder_ + "/chat.jsonl", "{}\n{}\n");
    return TextLengths();
  };
  EXPECT_EQ(BuildIndex(lines_, folder_, options).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(ReadFile(folder_ + "/index/docs.index"), bytes);
  std::filesystem::remove(folder_ + "/chat.jsonl");
  EXPECT_EQ(BuildIndex(lines_, folder_, FakeOptions()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(folder_ + "/index/docs.index"), bytes);
  // No other file is left beside the index.
  EXPECT_EQ(std::distance(
                std::filesystem::directory_iterator(folder_ + "/index"), {}),
            1);
}

TEST_F(IndexBuilderTest, AnIndexGoesStale) {
  std::filesystem::create_directories(folder_ + "/data");
  const std::string first = folder_ + "/data/docs-0.tar";
  const std::string second = folder_ + "/data/docs-1.tar";
  const auto write_first = [&] { WriteTar(first, {{"a.txt", "x"}}); };
  write_first();
  EXPECT_EQ(CheckIndexFresh(tars_, folder_, FakeKey()).code(),
            absl::StatusCode::kNotFound);
  Build(tars_);
  EXPECT_TRUE(CheckIndexFresh(tars_, folder_, FakeKey()).ok());
  EXPECT_TRUE(CheckIndexFresh(tars_, folder_ + "/", FakeKey()).ok());
  EXPECT_EQ(CheckIndexFresh(tars_, folder_, {"sizes", "lengths", "x"}).code(),
            absl::StatusCode::kFailedPrecondition);

  WriteTar(second, {{"b.txt", "x"}});  // added
  EXPECT_THAT(Stale(tars_), HasSubstr("there are 2 files, it knows 1"));
  std::filesystem::remove(first);  // removed
  EXPECT_THAT(Stale(tars_), HasSubstr("file 0 is data/docs-1.tar, it knows "
                                      "data/docs-0.tar"));
  std::filesystem::remove(second);
  write_first();
  Build(tars_);
  const auto time = std::filesystem::last_write_time(first);
  std::filesystem::last_write_time(first, time + std::chrono::nanoseconds(1));
  EXPECT_THAT(Stale(tars_), HasSubstr("data/docs-0.tar has another "
                                      "modification time"));
  std::filesystem::last_write_time(first, time);
  EXPECT_TRUE(CheckIndexFresh(tars_, folder_, FakeKey()).ok());
  std::ofstream(first, std::ios::app) << "x";
  std::filesystem::last_write_time(first, time);
  EXPECT_THAT(Stale(tars_),
              HasSubstr("data/docs-0.tar has 2049 bytes, it knows 2048"));
  std::filesystem::remove(first);
  EXPECT_EQ(CheckIndexFresh(tars_, folder_, FakeKey()).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(IndexBuilderTest, AnotherMediaRootMakesAnIndexStaleButAMoveDoesNot) {
  WriteFile(folder_ + "/here/chat.jsonl", "{}\n");
  std::filesystem::create_directories(folder_ + "/here/media");
  v1::Source source = lines_;
  const auto report = BuildIndex(source, folder_ + "/here", FakeOptions());
  ASSERT_TRUE(report.ok()) << report.status();
  std::filesystem::rename(folder_ + "/here", folder_ + "/there");
  EXPECT_TRUE(CheckIndexFresh(source, folder_ + "/there", FakeKey()).ok());
  source.add_media_root("media");
  EXPECT_EQ(CheckIndexFresh(source, folder_ + "/there", FakeKey()).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A configuration is read where it was written, from another folder, and beside
// a copy of the data.
TEST_F(IndexBuilderTest, AnIndexKnowsItsFilesByTheirPlaceBelowThePattern) {
  const std::string data = folder_ + "/data";
  std::filesystem::create_directories(data + "/a");
  std::filesystem::create_directories(folder_ + "/elsewhere");
  WriteTar(data + "/a/docs-0.tar", {{"a.txt", "x"}, {"b.jpg", "no text"}});
  WriteTar(data + "/docs-1.tar", {{"a.txt", "y"}});
  v1::Source source = MakeSource(v1::Source::FORMAT_WEBDATASET,
                                 data + "/{a/docs-0,docs-1}.tar");
  source.set_index(folder_ + "/index/docs.index");
  Build(source);
  const auto fresh = [&](const v1::Source& of, const std::string& directory) {
    return CheckIndexFresh(of, directory, FakeKey());
  };
  EXPECT_EQ(fresh(source, folder_), absl::OkStatus());
  EXPECT_EQ(fresh(source, folder_ + "/elsewhere"), absl::OkStatus());
  v1::Source relative = source;
  relative.set_path("../data/{a/docs-0,docs-1}.tar");
  EXPECT_EQ(fresh(relative, folder_ + "/elsewhere"), absl::OkStatus());
  // With its times, as `cp -a` makes one.
  const std::string copy = folder_ + "/copy";
  std::filesystem::create_directories(copy + "/a");
  for (const char* name : {"/a/docs-0.tar", "/docs-1.tar"}) {
    std::filesystem::copy_file(data + name, copy + name);
    std::filesystem::last_write_time(
        copy + name, std::filesystem::last_write_time(data + name));
  }
  v1::Source copied = source;
  copied.set_path(copy + "/{a/docs-0,docs-1}.tar");
  EXPECT_EQ(fresh(copied, folder_), absl::OkStatus());
  // A build of it reads nothing anew, and keeps the list of bad records.
  IndexOptions options = FakeOptions();
  options.key.lengths = "other";
  const auto report = BuildIndex(copied, folder_, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->reused_files, 2);
  ASSERT_EQ(report->bad.size(), 1);
  EXPECT_EQ(report->bad[0].file, "copy/a/docs-0.tar");
  // Files of the same names in other places of the pattern are others.
  v1::Source swapped = source;
  swapped.set_path(data + "/{docs-1,a/docs-0}.tar");
  EXPECT_EQ(fresh(swapped, folder_).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(IndexBuilderTest, AnIndexIsNamedByItsSourceAndModel) {
  const std::string data = folder_ + "/data";
  std::filesystem::create_directories(data);
  WriteTar(data + "/docs-0.tar", {{"a.txt", "x"}});
  WriteTar(data + "/docs-1.tar", {{"a.txt", "y"}});
  v1::Source source =
      MakeSource(v1::Source::FORMAT_WEBDATASET, data + "/docs-{0,1}.tar");
  // By an earlier version.
  source.set_index(folder_ + "/index/docs.index");
  Build(source);
  source.set_index(folder_ + "/index/docs-*.index");
  IndexOptions other = FakeOptions();
  other.key.limits = "other";
  const std::string path = IndexPath(source, folder_, FakeKey());
  const std::string other_path = IndexPath(source, folder_, other.key);
  EXPECT_THAT(path, ::testing::MatchesRegex(".*/index/docs-[0-9a-f]{8}.index"));
  EXPECT_NE(path, other_path);

  // Each is built beside the other, reads no file that the other one has, and
  // leaves it fresh.
  EXPECT_EQ(Build(source).reused_files, 2);
  const auto report = BuildIndex(source, folder_, other);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->reused_files, 2);
  EXPECT_EQ(CheckIndexFresh(source, folder_, FakeKey()), absl::OkStatus());
  EXPECT_EQ(CheckIndexFresh(source, folder_, other.key), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/index/docs.index"));

  // The same from another folder, and for a copy; another folder of data is
  // another source.
  v1::Source relative = source;
  relative.set_path("../data/docs-{0,1}.tar");
  EXPECT_EQ(IndexPath(relative, folder_ + "/elsewhere", FakeKey()), path);
  v1::Source copy = source;
  copy.set_path("/mnt/data/docs-{0,1}.tar");
  EXPECT_EQ(IndexPath(copy, folder_, FakeKey()), path);
  copy.set_path("/mnt/data-2/docs-{0,1}.tar");
  EXPECT_NE(IndexPath(copy, folder_, FakeKey()), path);

  // Unpacked lines do not follow from a model.
  EXPECT_EQ(LinesFolder(source, folder_), folder_ + "/index/docs.index.lines");
}

TEST_F(IndexBuilderTest, AMockSourceHasNoIndex) {
  EXPECT_EQ(BuildIndex(MakeSource(v1::Source::FORMAT_MOCK, ""), folder_,
                       FakeOptions())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace ballast
