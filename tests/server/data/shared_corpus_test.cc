// The 64 conversations over real photographs in BALLAST_SHARED_DIR/corpus.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/data/source_files.h"
#include "tests/fakes/read_sample.h"
#include "tests/fakes/shared_dir.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {
namespace {

// Width and height from a JPEG's frame header.
absl::StatusOr<ImageSize> ReadJpegSize(absl::string_view bytes) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(bytes[i]);
  };
  const auto number = [&](size_t i) {
    return static_cast<uint32_t>(byte(i) << 8 | byte(i + 1));
  };
  if (bytes.size() < 2) return absl::OutOfRangeError("cut");
  if (number(0) != 0xFFD8) return absl::InvalidArgumentError("no JPEG");
  for (size_t at = 2; at + 9 <= bytes.size(); at += 2 + number(at + 2)) {
    const unsigned char marker = byte(at + 1);
    if (byte(at) != 0xFF) return absl::InvalidArgumentError("no marker");
    if (marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 &&
        marker != 0xCC) {
      return ImageSize{number(at + 7), number(at + 5)};
    }
  }
  return absl::OutOfRangeError("cut");
}

class SharedCorpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    constexpr char kSamples[] = "corpus/samples.jsonl";
    const std::optional<std::string> shared = SharedDirWith(kSamples);
    if (!shared) GTEST_SKIP() << NotShared(kSamples);
    shared_ = *shared;
  }

  std::string shared_;
};

TEST_F(SharedCorpusTest, IndexesAndReadsAllSamples) {
  // Sizes as found by Pillow.
  std::map<std::string, ImageSize> golden;
  const nlohmann::json photographs =
      nlohmann::json::parse(ReadFile(shared_ + "/golden/images.json"));
  for (const auto& image : photographs["images"]) {
    golden["images/" + image["file"].get<std::string>()] = {
        image["width"].get<uint32_t>(), image["height"].get<uint32_t>()};
  }
  ASSERT_EQ(golden.size(), 20);

  v1::Source source = MakeSource(v1::Source::FORMAT_JSONL, "samples.jsonl");
  source.set_index(TestFolder() + "/samples.index");
  const std::string folder = shared_ + "/corpus";
  IndexOptions options = FakeOptions();
  options.read_image_size = ReadJpegSize;
  const auto report = BuildIndex(source, folder, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 64);
  for (const BadSample& bad : report->bad) {
    ADD_FAILURE() << bad.key << ": " << bad.reason;
  }
  const auto opened = OpenSource(source, folder, FakeKey());
  ASSERT_TRUE(opened.ok()) << opened.status();

  std::ifstream lines(folder + "/samples.jsonl");
  uint64_t images = 0;
  std::string line;
  for (uint64_t i = 0; std::getline(lines, line); ++i) {
    const auto sample = ReadSample(**opened, i, {});
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ(sample->text, line);
    EXPECT_EQ(sample->name, absl::StrCat("samples.jsonl:", i + 1));
    nlohmann::json paths =
        nlohmann::json::parse(line).value("image", nlohmann::json::array());
    if (paths.is_string()) paths = nlohmann::json::array({paths});
    const IndexedSample indexed = *(*opened)->index().sample(i);
    ASSERT_EQ(indexed.media.images().size(), paths.size()) << line;
    ASSERT_EQ(Images(*sample).size(), paths.size()) << line;
    for (size_t n = 0; n < paths.size(); ++n, ++images) {
      const auto path = paths[n].get<std::string>();
      EXPECT_EQ(indexed.media.images()[n].width, golden[path].width) << path;
      EXPECT_EQ(indexed.media.images()[n].height, golden[path].height) << path;
      EXPECT_EQ(Images(*sample)[n].size(),
                std::filesystem::file_size(folder + "/" + path));
    }
  }
  EXPECT_EQ(report->media[MediumKind::kImage], images);
}

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SharedFilesTest : public ::testing::Test {
 protected:
  void Add(const std::string& name, const std::string& path) {
    v1::Source source = MakeSource(v1::Source::FORMAT_WEBDATASET, path);
    source.set_name(name);
    *config_.add_sources() = source;
  }

  // "SOURCE FILE = SOURCE FILE"
  std::vector<std::string> Find() {
    const auto found = FindSharedFiles(config_, folder_);
    EXPECT_TRUE(found.ok()) << found.status();
    std::vector<std::string> lines;
    for (const SharedFile& file : *found) {
      lines.push_back(file.source + " " + file.file + " = " + file.as_source +
                      " " + file.as_file);
    }
    return lines;
  }

  void Write(const std::string& name) { WriteFile(folder_ + "/" + name, name); }

  const std::string folder_ = TestFolder();
  v1::Config config_;
};

TEST_F(SharedFilesTest, AcceptsSeparateFiles) {
  for (const char* name : {"a0.tar", "a1.tar", "b0.tar"}) Write(name);
  fs::copy_file(folder_ + "/a0.tar", folder_ + "/b1.tar");  // equal bytes
  Add("a", "a*.tar");
  Add("b", "b{0,1}.tar");
  Add("drawn", "");
  config_.mutable_sources(2)->set_format(v1::Source::FORMAT_MOCK);
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(SharedFilesTest, FindsAFileOfTwoSourcesByAnyName) {
  for (const char* name : {"0.tar", "1.tar", "2.tar", "3.tar"}) Write(name);
  fs::create_symlink("1.tar", folder_ + "/symbolic.tar");
  fs::create_hard_link(folder_ + "/2.tar", folder_ + "/hard.tar");
  fs::create_directory(folder_ + "/sub");
  Add("a", "{0..2}.tar");
  Add("b", "{0,symbolic,hard,sub/../2,3}.tar");
  EXPECT_THAT(Find(),
              ElementsAre("b 0.tar = a 0.tar", "b symbolic.tar = a 1.tar",
                          "b hard.tar = a 2.tar", "b sub/../2.tar = a 2.tar"));
}

TEST_F(SharedFilesTest, FindsAFileListedTwiceByOneSource) {
  Write("0.tar");
  fs::create_symlink(folder_ + "/0.tar", folder_ + "/link.tar");
  Add("a", "*.tar");
  EXPECT_THAT(Find(), ElementsAre("a link.tar = a 0.tar"));
}

TEST_F(SharedFilesTest, NamesTheSourceOfAPatternWithoutMatch) {
  Add("a", "gone*.tar");
  const auto missing = FindSharedFiles(config_, folder_);
  EXPECT_THAT(missing.status().message(), HasSubstr("source a"));
}

}  // namespace
}  // namespace ballast
