#include "server/data/tar/tar_reader.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Members {
  std::vector<TarMember> members;
  absl::Status status;  // status at the end
  uint64_t offset = 0;  // offset of the damage
};

// Reads a tar file of these bytes to its end.
Members ReadTar(absl::string_view bytes, bool whole = true) {
  const std::string path = TestFolder() + "/a.tar";
  WriteFile(path, bytes);
  auto file = File::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  TarReader reader(&*file, 0, bytes.size(), whole);
  Members result;
  while (true) {
    auto member = reader.Next();
    result.status = member.status();
    result.offset = reader.offset();
    if (!member.ok() || !*member) return result;
    result.members.push_back(**member);
  }
}

void ExpectDamage(absl::string_view bytes, const std::string& reason,
                  uint64_t offset) {
  const Members found = ReadTar(bytes);
  EXPECT_EQ(found.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.status.message()), HasSubstr(reason));
  EXPECT_EQ(found.offset, offset) << reason;
}

TEST(TarReaderTest, ReadsWhatTarWriterWrites) {
  const std::string path = TestFolder() + "/written.tar";
  WriteTar(path, {{"a/b.json", "{}"},
                  {std::string(90, 'd') + "/" + std::string(50, 'e'), ""},
                  {"c.jpg", std::string(513, 'x')}});
  const Members found = ReadTar(ReadFile(path));
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_EQ(found.members.size(), 3);
  EXPECT_EQ(found.members[0].name, "a/b.json");
  EXPECT_EQ(found.members[0].header, 0);
  EXPECT_EQ(found.members[0].data, 512);
  EXPECT_EQ(found.members[0].size, 2);
  EXPECT_EQ(found.members[0].end, 1024);
  EXPECT_EQ(found.members[1].name,
            std::string(90, 'd') + "/" + std::string(50, 'e'));
  EXPECT_EQ(found.members[1].size, 0);
  EXPECT_EQ(found.members[2].header, 1536);
  EXPECT_EQ(found.members[2].size, 513);
  EXPECT_EQ(found.members[2].end, 1536 + 512 + 1024);
  EXPECT_EQ(found.members[2].type, kTarFile);
}

TEST(TarReaderTest, ReadsLongNames) {
  const std::string name = std::string(300, 'n') + ".json";
  const Members found = ReadTar(
      TarEntry("././@LongLink", name + std::string(1, '\0'), 'L') +
      TarEntry("short", "1") +
      TarEntry("pax", PaxRecord("path", name + "2") + PaxRecord("mtime", "1.5"),
               'x') +
      TarEntry("short", "22") + TarEntry("k", "link", 'K') +
      TarEntry("g", PaxRecord("comment", "all"), 'g') +
      TarEntry("plain", "333") + TarEnd());
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_EQ(found.members.size(), 3);
  EXPECT_EQ(found.members[0].name, name);
  EXPECT_EQ(found.members[0].header, 0);
  EXPECT_EQ(found.members[0].data, 3 * 512);
  EXPECT_EQ(found.members[1].name, name + "2");
  EXPECT_EQ(found.members[1].header, found.members[0].end);
  EXPECT_EQ(found.members[2].name, "plain");
  EXPECT_EQ(found.members[2].header, found.members[1].end);
  EXPECT_EQ(found.members[2].size, 3);
}

TEST(TarReaderTest, ReadsSizes) {
  const std::string base256("\x80\0\0\0\0\0\0\0\0\0\0\5", 12);
  const Members found =
      ReadTar(TarBlock("a", base256) + std::string(512, 'a') +
              TarEntry("pax", PaxRecord("size", "700"), 'x') +
              TarBlock("b", "00000000000") + std::string(1024, 'b') +
              TarBlock("c", "         7 ") + std::string(512, 'c') + TarEnd());
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_EQ(found.members.size(), 3);
  EXPECT_EQ(found.members[0].size, 5);
  EXPECT_EQ(found.members[1].size, 700);
  EXPECT_EQ(found.members[2].size, 7);
}

TEST(TarReaderTest, ParsesNumbers) {
  EXPECT_EQ(ParseTarNumber(absl::string_view("0000017\0", 8)), 15);
  EXPECT_EQ(ParseTarNumber("777777777777"), (uint64_t{1} << 36) - 1);
  EXPECT_EQ(ParseTarNumber("    10  "), 8);
  EXPECT_EQ(ParseTarNumber(absl::string_view("\x80\0\1\2", 4)), 258);
  EXPECT_EQ(ParseTarNumber("\x80\x7f\xff\xff\xff\xff\xff\xff\xff"),
            (uint64_t{1} << 63) - 1);
  EXPECT_EQ(ParseTarNumber(absl::string_view("\x80\x80\0\0\0\0\0\0\0", 9)),
            std::nullopt);
  EXPECT_EQ(ParseTarNumber("\xff\xff\xff\xff"), std::nullopt);
  EXPECT_EQ(ParseTarNumber("\x81zzz"), std::nullopt);
  for (const absl::string_view wrong :
       {"", "        ", "0008", "-001", "1 1", "0x10", "7777777777777"}) {
    EXPECT_EQ(ParseTarNumber(wrong), std::nullopt) << wrong;
  }
}

TEST(TarReaderTest, ReadsNoBytesForLinks) {
  const Members found = ReadTar(TarBlock("link.jpg", "00000007777", '2') +
                                TarBlock("dir/", "00000000000", '5') +
                                TarEntry("a", "x") + TarEnd());
  ASSERT_TRUE(found.status.ok()) << found.status;
  ASSERT_EQ(found.members.size(), 3);
  EXPECT_EQ(found.members[0].type, '2');
  EXPECT_EQ(found.members[0].size, 0);
  EXPECT_EQ(found.members[1].type, '5');
}

TEST(TarReaderTest, ReadsARange) {
  const Members found =
      ReadTar(TarEntry("a", "1") + TarEntry("b", "2"), /*whole=*/false);
  EXPECT_TRUE(found.status.ok()) << found.status;
  EXPECT_EQ(found.members.size(), 2);
}

TEST(TarReaderTest, NamesTheDamageAndItsOffset) {
  const std::string good = TarEntry("good", "1");
  std::string flipped = TarEntry("a", "x");
  flipped[0] = 'b';
  ExpectDamage(good + flipped + TarEnd(), "checksum", 1024);
  std::string garbage(512, '\xee');
  ExpectDamage(good + garbage + TarEnd(), "its checksum is no number", 1024);
  ExpectDamage(good, "without an end mark", 1024);
  ExpectDamage("", "without an end mark", 0);
  ExpectDamage(good + TarBlock("a", "00000000001"), "reaches past the end",
               1024);
  ExpectDamage(good + std::string(100, '\0'), "inside a header", 1024);
  ExpectDamage(good + TarBlock("a", "0000000000z") + TarEnd(),
               "size is no number", 1024);
  ExpectDamage(good + TarEntry("", "x") + TarEnd(), "without a name", 1024);
  ExpectDamage(good + TarEntry("s", "x", 'S') + TarEnd(), "sparse", 1024);
  ExpectDamage(TarEntry("p", PaxRecord("GNU.sparse.major", "1"), 'x') +
                   TarEntry("s", "x") + TarEnd(),
               "sparse", 0);
  ExpectDamage(TarEntry("g", PaxRecord("path", "x"), 'g') + TarEnd(),
               "global pax", 0);
  ExpectDamage(TarEntry("L", "name", 'L') + TarEnd(), "end mark where a member",
               1024);
  ExpectDamage(TarEntry("L", "name", 'L'), "inside a header", 1024);
  ExpectDamage(TarEntry("L", std::string(4097, 'n'), 'L') + TarEntry("s", "x") +
                   TarEnd(),
               "name of 4097 bytes", 10 * 512);
  ExpectDamage(TarBlock("L", "00004000001", 'L') + TarEnd(),
               "extended header of 1048577 bytes", 0);
  ExpectDamage(TarBlock("L", "00000004000", 'L') + TarEnd(),
               "inside an extended header", 0);
  ExpectDamage(good + TarEnd() + good, "several tar files", 2048);
  for (const absl::string_view records :
       {"x", "5", "99 path=a\n", "4 a\n", "6 path", "5 a=b\n", "0 a=b\n",
        "07 a=b\nz", "9 size=x\n", "99999999999999999999 a=b\n"}) {
    const Members found =
        ReadTar(TarEntry("p", records, 'x') + TarEntry("a", "x") + TarEnd());
    EXPECT_EQ(found.status.code(), absl::StatusCode::kDataLoss) << records;
    EXPECT_THAT(std::string(found.status.message()), HasSubstr("pax header"));
  }
}

TEST(TarReaderTest, SurvivesFlippedAndCutBytes) {
  const std::string tar =
      TarEntry("p", PaxRecord("path", "a.json") + PaxRecord("size", "3"), 'x') +
      TarEntry("a.json", "abc") +
      TarEntry("L", std::string("b.json\0", 7), 'L') + TarEntry("b", "def") +
      TarEnd();
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = tar;
    for (int flip = 0; flip < 3; ++flip) {
      damaged[random() % damaged.size()] ^= 1 << random() % 8;
    }
    if (round % 4 == 0) damaged.resize(random() % damaged.size());
    const Members found = ReadTar(damaged);
    EXPECT_LE(found.members.size(), 4);
    for (const TarMember& member : found.members) {
      EXPECT_LE(member.data + member.size, damaged.size());
    }
  }
}

std::string Contents(const std::string& path) {
  absl::StatusOr<FileStamp> stamp = StampFile(path);
  absl::StatusOr<File> file = File::Open(path);
  if (!stamp.ok() || !file.ok()) return "";
  return file->ReadAt(0, stamp->size).value();
}

std::string Field(absl::string_view text, size_t width) {
  std::string field(text);
  field.resize(width, '\0');
  return field;
}

// A header laid out as in POSIX.1-1988. `checksum` was computed independently
// (by Python's tarfile, for the names below).
std::string Header(absl::string_view name, absl::string_view size,
                   absl::string_view checksum, absl::string_view prefix = "") {
  return Field(name, 100) + Field("0000644", 8) + Field("0000000", 8) +
         Field("0000000", 8) + Field(size, 12) + Field("00000000000", 12) +
         Field(checksum, 7) + " 0" + Field("", 100) + Field("ustar", 6) + "00" +
         Field("", 32) + Field("", 32) + Field("", 8) + Field("", 8) +
         Field(prefix, 155) + Field("", 12);
}

TEST(TarWriterTest, WritesUstar) {
  const std::string path = ::testing::TempDir() + "/writes_ustar.tar";
  auto writer = TarWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string directory(60, 'd');
  const std::string base = std::string(60, 'e') + ".txt";
  EXPECT_TRUE((*writer)->Add("000000.json", "{\"a\":1}").ok());
  EXPECT_TRUE(
      (*writer)->Add(directory + "/" + base, std::string(512, 'x')).ok());
  EXPECT_TRUE((*writer)->Add("empty.txt", "").ok());
  EXPECT_TRUE((*writer)->Finish().ok());
  EXPECT_EQ(
      Contents(path),
      Header("000000.json", "00000000007", "007354") + Field("{\"a\":1}", 512) +
          Header(base, "00000001000", "036210", directory) +
          std::string(512, 'x') + Header("empty.txt", "00000000000", "007632") +
          std::string(1024, '\0'));
}

TEST(TarWriterTest, RefusesNamesThatDoNotFit) {
  const std::string path = ::testing::TempDir() + "/refuses.tar";
  auto writer = TarWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const std::string& name :
       {std::string(), std::string(101, 'a'), std::string("a\0b", 3),
        std::string(156, 'a') + "/b", "a/" + std::string(101, 'b')}) {
    EXPECT_EQ((*writer)->Add(name, "x").code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_TRUE((*writer)->Add(std::string(100, 'a'), "x").ok());
  EXPECT_TRUE(
      (*writer)
          ->Add(std::string(155, 'a') + "/" + std::string(100, 'b'), "x")
          .ok());
}

TEST(TarWriterTest, NamesAMissingDirectory) {
  const std::string path = ::testing::TempDir() + "/no/such/place.tar";
  const auto writer = TarWriter::Create(path);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(writer.status().message()),
              ::testing::HasSubstr(path));
}

}  // namespace
}  // namespace ballast
