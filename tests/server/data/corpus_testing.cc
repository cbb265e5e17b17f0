#include "tests/server/data/corpus_testing.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "server/data/tar/tar_reader.h"

namespace ballast {
namespace {

std::string Padded(absl::string_view text, size_t width) {
  std::string field(text.substr(0, width));
  field.resize(width, '\0');
  return field;
}

std::string ToBlocks(absl::string_view bytes) {
  return Padded(bytes, (bytes.size() + 511) / 512 * 512);
}

}  // namespace

std::string TestFolder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(test->test_suite_name(), ".", test->name());
  std::replace(name.begin(), name.end(), '/', '_');
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder.string();
}

void WriteFile(const std::string& path, absl::string_view bytes) {
  std::filesystem::create_directories(
      std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

std::string TarBlock(absl::string_view name, absl::string_view size, char type,
                     absl::string_view prefix) {
  std::string block =
      Padded(name, 100) + Padded("0000644", 8) + Padded("0000000", 8) +
      Padded("0000000", 8) + Padded(size, 12) + Padded("00000000000", 12) +
      "        " + std::string(1, type) + Padded("", 100) + Padded("ustar", 6) +
      "00" + Padded("", 80) + Padded(prefix, 155);
  block.resize(512, '\0');
  int sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  block.replace(148, 8, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
  return block;
}

std::string TarEntry(absl::string_view name, absl::string_view bytes,
                     char type) {
  return TarBlock(name, absl::StrFormat("%011o", bytes.size()), type) +
         ToBlocks(bytes);
}

std::string TarEnd() { return std::string(1024, '\0'); }

std::string PaxRecord(absl::string_view key, absl::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest;
  while (absl::StrCat(length).size() + rest != length) ++length;
  return absl::StrCat(length, " ", key, "=", value, "\n");
}

void WriteTar(const std::string& path,
              const std::vector<std::pair<std::string, std::string>>& members) {
  auto writer = TarWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& [name, bytes] : members) {
    ASSERT_TRUE((*writer)->Add(name, bytes).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
}

std::string FakeImage(uint32_t width, uint32_t height, size_t before) {
  std::string bytes(before, 'x');
  bytes += '#';
  bytes.append(reinterpret_cast<const char*>(&width), sizeof(width));
  bytes.append(reinterpret_cast<const char*>(&height), sizeof(height));
  return bytes;
}

absl::StatusOr<ImageSize> ReadFakeImage(absl::string_view bytes) {
  const size_t mark = bytes.find_first_not_of('x');
  if (mark == bytes.npos) return absl::OutOfRangeError("no mark");
  if (bytes[mark] != '#') return absl::InvalidArgumentError("no image");
  bytes.remove_prefix(mark + 1);
  ImageSize size;
  if (bytes.size() < sizeof(size)) return absl::OutOfRangeError("no size");
  std::memcpy(&size, bytes.data(), sizeof(size));
  return size;
}

absl::StatusOr<TextLengths> MeasureBytes(const RawSample& sample,
                                         absl::Span<const ImageSize> images) {
  EXPECT_TRUE(sample.media.empty());
  if (absl::StrContains(sample.text, "unmeasurable")) {
    return absl::OutOfRangeError("unmeasurable");
  }
  TextLengths lengths;
  lengths.text_tokens = static_cast<uint32_t>(sample.text.size());
  lengths.label_tokens = static_cast<uint32_t>(1000 * images.size());
  if (images.empty()) lengths.unlearnt = "no images";
  lengths.limited = absl::StrContains(sample.text, "limited");
  lengths.skip = absl::StrContains(sample.text, "skip");
  return lengths;
}

IndexKey FakeKey() { return {"sizes", "lengths", "limits"}; }

IndexOptions FakeOptions() {
  IndexOptions options;
  options.measure = MeasureBytes;
  options.read_image_size = ReadFakeImage;
  options.key = FakeKey();
  options.lengths_hold = [](const TextLengths&, absl::Span<const ImageSize>) {
    return true;
  };
  return options;
}

v1::Source MakeSource(v1::Source::Format format, absl::string_view path) {
  v1::Source source;
  source.set_name("docs");
  source.set_format(format);
  source.set_path(std::string(path));
  source.set_index("index/docs.index");
  return source;
}

}  // namespace ballast
