#include "server/corpus/source_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/corpus/corpus_testing.h"

namespace ballast {
namespace {

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
