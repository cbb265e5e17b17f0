#include "server/corpus/tar/tar_writer.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

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
