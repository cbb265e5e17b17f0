#include "server/data/unpack_lines.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/data/index/shard_scan.h"
#include "server/data/open_source.h"
#include "server/data/parquet/unpack.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The low `count` bytes of `value`, little-endian.
std::string Bytes(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

constexpr uint64_t kNoSize = 0;
const std::string kMagic = Bytes(0xFD2FB528, 4);

// The header of a zstd frame (RFC 8878), which says that `size` bytes follow,
// or not how many, with a window of 2^window bytes.
std::string FrameHeader(uint64_t size, int window = 17) {
  // Bits 7 and 6 of the descriptor: a size of 8 bytes.
  return kMagic + Bytes(size == kNoSize ? 0 : 0xC0, 1) +
         Bytes((window - 10) << 3, 1) + Bytes(size, size == kNoSize ? 0 : 8);
}

// A frame of blocks that are not compressed.
std::string Frame(absl::string_view text, bool with_size) {
  constexpr size_t kMaxBlock = 128 << 10;
  std::string frame = FrameHeader(with_size ? text.size() : kNoSize);
  do {
    const absl::string_view block = text.substr(0, kMaxBlock);
    text.remove_prefix(block.size());
    absl::StrAppend(
        &frame, Bytes(block.size() << 3 | (text.empty() ? 1 : 0), 3), block);
  } while (!text.empty());
  return frame;
}

// A frame that decoders skip, as pzstd writes.
std::string SkippableFrame(absl::string_view bytes) {
  return absl::StrCat(Bytes(0x184D2A50, 4), Bytes(bytes.size(), 4), bytes);
}

// `count` lines, the last without its break.
std::string Lines(int count, absl::string_view more = "") {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&lines, i == 0 ? "" : "\n", R"({"text": "document )", i,
                    more, R"("})");
  }
  return lines;
}

class UnpackLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!IsPacked("chat.jsonl.zst")) GTEST_SKIP() << "this build has no Arrow";
  }

  absl::StatusOr<UnpackReport> Run(const Shard& shard = {}) {
    return UnpackLines(source_, folder_, shard, /*threads=*/2, nullptr);
  }

  IndexReport Build(const v1::Source& source) {
    const auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : IndexReport();
  }

  absl::StatusOr<std::unique_ptr<FileSource>> Open(const v1::Source& source) {
    return OpenSource(source, folder_, FakeKey());
  }

  void WriteZst(absl::string_view bytes) {
    WriteFile(folder_ + "/chat.jsonl.zst", bytes);
  }

  // The names in the folder of unpacked lines.
  std::vector<std::string> Unpacked() const {
    std::vector<std::string> names;
    std::error_code none;
    for (fs::directory_iterator entry(LinesFolder(source_, folder_), none), end;
         !none && entry != end; ++entry) {
      names.push_back(entry->path().string());
    }
    return names;
  }

  const std::string folder_ = TestFolder();
  const v1::Source source_ =
      MakeSource(v1::Source::FORMAT_JSONL, "chat.jsonl.zst");
};

TEST_F(UnpackLinesTest, ReadsWhatTheSameLinesGiveUncompressed) {
  const std::string lines = Lines(20'000);
  const size_t cut = lines.size() / 3;
  ASSERT_GT(cut, 130'000u);  // several blocks
  WriteZst(SkippableFrame("12 bytes as pzstd") +
           Frame(lines.substr(0, cut), true) + Frame("", true) +
           Frame(lines.substr(cut), false));
  WriteFile(folder_ + "/plain.jsonl", lines);
  v1::Source plain = source_;
  plain.set_path("plain.jsonl");
  plain.set_index("index/plain.index");
  const auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->files, 1);
  EXPECT_EQ(report->packed_bytes, fs::file_size(folder_ + "/chat.jsonl.zst"));
  EXPECT_EQ(report->bytes, lines.size());
  ASSERT_EQ(Unpacked().size(), 1);
  EXPECT_EQ(ReadFile(Unpacked()[0]), lines);
  EXPECT_TRUE(absl::EndsWith(Unpacked()[0], "-chat.jsonl"));
  EXPECT_EQ(Build(source_).samples, 20'000);
  EXPECT_EQ(Build(plain).samples, 20'000);
  const auto found = Open(source_);
  const auto wanted = Open(plain);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  EXPECT_EQ((*found)->index().digest(), (*wanted)->index().digest());
  EXPECT_EQ((*found)->Locate(0).file, "");  // nobody has touched it
  for (const uint64_t i : {0, 4'321, 19'999}) {
    const auto one = (*found)->Read(i, ReadParts());
    const auto other = (*wanted)->Read(i, ReadParts());
    ASSERT_TRUE(one.ok() && one->ok()) << one.status();
    EXPECT_EQ((*one)->text, (**other).text);
    EXPECT_EQ((*found)->Locate(i).offset, (*wanted)->Locate(i).offset);
    EXPECT_EQ((*found)->Locate(i).file, "chat.jsonl.zst");
  }
  // There is nothing left to do.
  EXPECT_EQ(Run()->files, 0);
  EXPECT_EQ(*RemoveOldLines(source_, folder_), 0);
}

TEST_F(UnpackLinesTest, AnEmptyFrameHasNoLines) {
  WriteZst(Frame("", true));
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(Build(source_).samples, 0);
}

TEST_F(UnpackLinesTest, ReadsFromAStore) {
  v1::Source stored = source_;
  stored.set_path("file://" + folder_ + "/chat.jsonl.zst");
  WriteZst(Frame(Lines(300), true));
  const auto report = UnpackLines(stored, folder_, {}, 1, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->files, 1);
  EXPECT_EQ(Build(stored).samples, 300);
}

TEST_F(UnpackLinesTest, NamesDamageAndLeavesNothing) {
  const std::string whole = Frame(Lines(9'000), true);
  std::string broken = whole;
  broken[FrameHeader(1).size()] |= 6;  // a block of no known type
  const struct {
    std::string bytes;
    std::string reason;
  } kDamaged[] = {
      {whole.substr(0, 200'000),
       "chat.jsonl.zst: ends at byte 200000 within a frame, as if its download "
       "was cut off; fetch it again, until `zstd -t chat.jsonl.zst` is fine"},
      {"", "chat.jsonl.zst: ends at byte 0 within a frame"},
      {broken, "chat.jsonl.zst: damaged between bytes 0 and 131072 of "},
      {Lines(3), "chat.jsonl.zst: damaged between bytes 0 and "},
      {whole + "rest", absl::StrCat("chat.jsonl.zst: damaged between bytes ",
                                    whole.size(), " and ")},
  };
  for (const auto& [bytes, reason] : kDamaged) {
    WriteZst(bytes);
    const auto report = Run();
    EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(report.status().message()), StartsWith(reason));
    EXPECT_TRUE(Unpacked().empty());
  }
  // zstd --long=31.
  WriteZst(FrameHeader(kNoSize, 31) + Bytes(1, 3));
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(Run().status().message()),
      AllOf(StartsWith("chat.jsonl.zst: the frame at byte 0 has a window "
                       "of more than 128 MiB"),
            HasSubstr("zstd -dc --long=31 chat.jsonl.zst | zstd")));
  EXPECT_TRUE(Unpacked().empty());
}

TEST_F(UnpackLinesTest, RefusesWhatTheDiskHasNoRoomFor) {
  WriteZst(FrameHeader(uint64_t{1} << 62) + Bytes(1, 3));
  const auto report = Run();
  EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(report.status().message(),
              HasSubstr("take at least 4611686018427387904 bytes, found "));
  EXPECT_TRUE(Unpacked().empty());
}

// Blocks of one byte that is repeated (RFC 8878, 3.1.1.2.3): 4 bytes make 128 KiB.
TEST_F(UnpackLinesTest, RefusesWhatIsMadeToFillADisk) {
  std::string bomb = FrameHeader(kNoSize);
  for (int i = 0; i < 4000; ++i) {
    absl::StrAppend(&bomb, Bytes(uint64_t{128 << 10} << 3 | 1 << 1, 3), "a");
  }
  WriteZst(bomb + Bytes(1, 3));
  const auto report = Run();
  EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(report.status().message()),
              AllOf(HasSubstr("chat.jsonl.zst"), HasSubstr("16009 bytes"),
                    HasSubstr("at most 100 times")));
  EXPECT_TRUE(Unpacked().empty());
}

TEST_F(UnpackLinesTest, AChangedFileIsIndexedAgain) {
  WriteZst(Frame(Lines(3), true));
  ASSERT_TRUE(Run().ok());
  Build(source_);
  ASSERT_TRUE(Open(source_).ok());
  WriteZst(Frame(Lines(4), true));
  EXPECT_EQ(Open(source_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Open(source_).status().message(),
              AllOf(HasSubstr("stale index: compressed files have changed, or "
                              "their lines are not unpacked: "),
                    HasSubstr("run `ballast-server index")));
  EXPECT_EQ(Run()->files, 1);
  EXPECT_EQ(Unpacked().size(), 2);
  EXPECT_EQ(Build(source_).samples, 4);
  ASSERT_TRUE(Open(source_).ok());
  EXPECT_EQ(*RemoveOldLines(source_, folder_), 1);
  ASSERT_TRUE(Open(source_).ok());
  // Without it nothing says which lines are its.
  fs::remove(folder_ + "/chat.jsonl.zst");
  EXPECT_THAT(Open(source_).status().message(), HasSubstr("chat.jsonl.zst"));
}

TEST_F(UnpackLinesTest, TheIndexHoldsForLinesThatAreUnpackedAgain) {
  WriteZst(Frame(Lines(3), true));
  ASSERT_TRUE(Run().ok());
  Build(source_);
  fs::remove_all(LinesFolder(source_, folder_));
  EXPECT_FALSE(Open(source_).ok());
  EXPECT_EQ(Run()->files, 1);
  const auto opened = Open(source_);
  EXPECT_TRUE(opened.ok()) << opened.status();
}

TEST_F(UnpackLinesTest, GoesOnAfterItWasKilled) {
  WriteZst(Frame(Lines(3), true));
  ASSERT_TRUE(Run().ok());
  const std::string lines = Unpacked().at(0);
  fs::rename(lines, lines + ".writing.abcdef");
  EXPECT_EQ(Run()->files, 1);
  ASSERT_EQ(Unpacked().size(), 1);
  EXPECT_EQ(Unpacked()[0], lines);
}

TEST_F(UnpackLinesTest, AShardUnpacksItsShare) {
  v1::Source both = source_;
  both.set_path("chat{1,2}.jsonl.zst");
  WriteFile(folder_ + "/chat1.jsonl.zst", Frame(Lines(3), true));
  WriteFile(folder_ + "/chat2.jsonl.zst", Frame(Lines(4), false));
  for (const uint32_t number : {2u, 1u}) {
    const Shard shard = {number, 2};
    const auto report = UnpackLines(both, folder_, shard, 1, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->files, 1);
    const auto scanned = ScanShard(both, folder_, FakeOptions(), shard);
    ASSERT_TRUE(scanned.ok()) << scanned.status();
    EXPECT_EQ(scanned->samples, number == 1 ? 3 : 4);
  }
  const auto merged = MergeScans(both, folder_, FakeOptions());
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->samples, 7);
  EXPECT_TRUE(Open(both).ok());
}

TEST_F(UnpackLinesTest, TheFirstLinesAreWhole) {
  const std::string lines = Lines(20'000, std::string(1'000, 'x'));
  WriteZst(Frame(lines, false));
  const auto first = OpenFirstLines(folder_ + "/chat.jsonl.zst");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->is_cut);
  const uint64_t size = first->file.stamp().size;
  EXPECT_GT(size, (16 << 20) - 2'000);
  EXPECT_LT(size, lines.size());
  const auto bytes = first->file.ReadAt(0, size);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE(absl::StartsWith(lines, *bytes));
  EXPECT_TRUE(absl::EndsWith(*bytes, "\n"));
  // Blocks that are not compressed: about as many bytes.
  EXPECT_NEAR(first->packed_bytes, size, 300'000);
  WriteFile(folder_ + "/plain.jsonl", lines);
  const auto plain = OpenFirstLines(folder_ + "/plain.jsonl");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->file.stamp().size, lines.size());
  EXPECT_EQ(plain->packed_bytes, 0);
}

}  // namespace
}  // namespace ballast
