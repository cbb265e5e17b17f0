#include "server/files/path_pattern.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseStoreUrlTest, TakesBucketAndKey) {
  const auto url = ParseStoreUrl("s3://bucket/a/b-000.tar");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->scheme, "s3");
  EXPECT_EQ(url->path, "bucket/a/b-000.tar");
  EXPECT_EQ(ParseStoreUrl("s3://bucket/media/")->path, "bucket/media");
  EXPECT_EQ(ParseStoreUrl("file:///data/x.tar")->path, "/data/x.tar");
}

TEST(ParseStoreUrlTest, RefusesWhatCannotBeOpened) {
  for (const char* url :
       {"ftp://host/x", "s3:///key", "s3://", "s3://b//k", "s3://b/../k",
        "s3://b/./k", "file://relative", "no scheme"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseStoreUrl(url).status())) << url;
  }
  const absl::Status keys = ParseStoreUrl("s3://ID:SECRET@bucket/k").status();
  EXPECT_TRUE(absl::IsInvalidArgument(keys));
  EXPECT_THAT(keys.message(), Not(HasSubstr("SECRET")));
  const absl::Status account =
      ParseStoreUrl("abfs://c@me.dfs.core.windows.net/k").status();
  EXPECT_THAT(account.message(), AllOf(HasSubstr("abfs://CONTAINER/KEY"),
                                       HasSubstr("storage.azure.account")));
}

TEST(ResolvePath, LeavesObjectsOfStoresAlone) {
  EXPECT_TRUE(IsStoreUrl("s3://bucket/a"));
  EXPECT_TRUE(IsStoreUrl("nonsense://x"));
  for (const char* path : {"a/b", "/a//b", "://a", "a b://c", "s3:/b", ""}) {
    EXPECT_FALSE(IsStoreUrl(path)) << path;
  }
  EXPECT_EQ(ResolvePath("/data", "s3://bucket/a"), "s3://bucket/a");
}

TEST(ResolvePath, JoinsUnlessAbsolute) {
  EXPECT_EQ(ResolvePath("/a", "b/c"), "/a/b/c");
  EXPECT_EQ(ResolvePath("/a/", "b"), "/a/b");
  EXPECT_EQ(ResolvePath("/", "b"), "/b");
  EXPECT_EQ(ResolvePath("/a", "/b"), "/b");
  EXPECT_EQ(ResolvePath("", "b"), "b");
  EXPECT_EQ(ResolvePath(".", "b"), "b");
  EXPECT_EQ(ResolvePath("/a", ""), "/a");
  EXPECT_EQ(ResolvePath("/a", "."), "/a");
  EXPECT_EQ(ResolvePath("", "."), ".");
}

// Expected values are bash's output for the same words.
TEST(ExpandBraces, AgreesWithTheShell) {
  const auto expand = [](const char* pattern) {
    return ExpandBraces(pattern).value();
  };
  EXPECT_THAT(expand("a.tar"), ElementsAre("a.tar"));
  EXPECT_THAT(expand("a,b"), ElementsAre("a,b"));
  EXPECT_THAT(expand("x{a,b}y"), ElementsAre("xay", "xby"));
  EXPECT_THAT(expand("{a,b}{1,2}"), ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(expand("{a,{b,c}d}"), ElementsAre("a", "bd", "cd"));
  EXPECT_THAT(expand("a{,b}"), ElementsAre("a", "ab"));
  EXPECT_THAT(expand("{0..3}"), ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(expand("{3..1}"), ElementsAre("3", "2", "1"));
  EXPECT_THAT(expand("d-{008..011}"),
              ElementsAre("d-008", "d-009", "d-010", "d-011"));
  EXPECT_THAT(expand("{08..10}"), ElementsAre("08", "09", "10"));
  EXPECT_THAT(expand("{9..010}"), ElementsAre("009", "010"));
  EXPECT_THAT(expand("{a,{1..2}}*.tar"),
              ElementsAre("a*.tar", "1*.tar", "2*.tar"));
  EXPECT_THAT(expand("{../a,../b}"), ElementsAre("../a", "../b"));
}

TEST(ExpandBraces, RefusesMalformedBraces) {
  for (const char* pattern :
       {"{", "}", "{a", "a}", "{a,{b}", "{}", "{a..c}", "{1..}", "{1..2..3}",
        "{-1..2}", "{0..1000000}", "{0..999}{0..999}{0..1}",
        "{0..99999999999999999999}"}) {
    const auto names = ExpandBraces(pattern);
    EXPECT_EQ(names.status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
    EXPECT_THAT(std::string(names.status().message()), HasSubstr(pattern));
  }
  EXPECT_FALSE(ExpandBraces(absl::string_view("a\0b", 3)).ok());
  EXPECT_EQ(ExpandBraces("{0..999}{0..999}").value().size(), 1000000u);
}

// Files of other depths would be left out without a word.
TEST(ExpandBraces, RefusesWhatShellsTakeForAllDepths) {
  for (const char* pattern :
       {"**/*.tar", "/a/**/b.tar", "a/{b,**}/c.tar", "s3://b/**"}) {
    EXPECT_THAT(std::string(ExpandBraces(pattern).status().message()),
                HasSubstr("would match one folder"))
        << pattern;
  }
  EXPECT_THAT(ExpandBraces("a**/b").value(), ElementsAre("a**/b"));
}

TEST(ExpandBraces, BoundsTheWorkOfHostilePatterns) {
  std::string nested;
  for (int i = 0; i < 30000; ++i) nested += "{";
  EXPECT_FALSE(ExpandBraces(nested).ok());
  EXPECT_FALSE(ExpandBraces(std::string(100000, 'a')).ok());
  std::string copies = "{0..999999}";
  for (int i = 0; i < 10000; ++i) copies += "{a}";
  EXPECT_FALSE(ExpandBraces(copies).ok());
  // Many long names.
  EXPECT_FALSE(ExpandBraces("{0..999999}" + std::string(60000, 'a')).ok());
}

class ExpandPathTest : public testing::Test {
 protected:
  // The directory's own name has characters that are special in a pattern.
  ExpandPathTest() : directory_(testing::TempDir() + "/path [x]{1}*") {
    mkdir(directory_.c_str(), 0700);
    mkdir((directory_ + "/sub").c_str(), 0700);
    for (const char* name : {"b1.tar", "a2.tar", "a1.tar", "a10.tar",
                             ".hidden.tar", "sub/c.tar", "w*.tar"}) {
      std::ofstream(directory_ + "/" + name) << "x";
    }
  }

  std::vector<std::string> Expand(const std::string& pattern) {
    const auto files = ExpandPath(directory_, pattern);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    for (const std::string& file : files.value()) {
      EXPECT_EQ(file.substr(0, directory_.size() + 1), directory_ + "/");
      names.push_back(file.substr(directory_.size() + 1));
    }
    return names;
  }

  absl::Status ExpandError(const std::string& pattern) {
    return ExpandPath(directory_, pattern).status();
  }

  const std::string directory_;
};

TEST_F(ExpandPathTest, BracesKeepTheirOrderAndGlobsAreSorted) {
  EXPECT_THAT(Expand("b1.tar"), ElementsAre("b1.tar"));
  EXPECT_THAT(Expand("{b1,a1}.tar"), ElementsAre("b1.tar", "a1.tar"));
  EXPECT_THAT(Expand("a*.tar"), ElementsAre("a1.tar", "a10.tar", "a2.tar"));
  EXPECT_THAT(Expand("{b,a}?.tar"), ElementsAre("b1.tar", "a1.tar", "a2.tar"));
  EXPECT_THAT(Expand("[ab]1.tar"), ElementsAre("a1.tar", "b1.tar"));
  EXPECT_THAT(Expand("*/c.tar"), ElementsAre("sub/c.tar"));
  EXPECT_THAT(Expand("w\\*.tar"), ElementsAre("w*.tar"));
}

TEST_F(ExpandPathTest, ListsNoFileTwice) {
  EXPECT_THAT(Expand("{a2,a*,a1}.tar"),
              ElementsAre("a2.tar", "a1.tar", "a10.tar"));
}

TEST_F(ExpandPathTest, GlobsSkipDirectoriesAndHiddenNames) {
  EXPECT_THAT(Expand("*"),
              ElementsAre("a1.tar", "a10.tar", "a2.tar", "b1.tar", "w*.tar"));
}

TEST_F(ExpandPathTest, AbsolutePatternsIgnoreTheDirectory) {
  std::ofstream(testing::TempDir() + "/absolute.tar") << "x";
  const std::string pattern = testing::TempDir() + "/absol*.tar";
  EXPECT_THAT(ExpandPath("/nowhere", pattern).value(),
              ElementsAre(testing::TempDir() + "/absolute.tar"));
}

TEST_F(ExpandPathTest, NamesMissingFiles) {
  const absl::Status name = ExpandError("{a1,zz}.tar");
  EXPECT_EQ(name.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(name.message()), HasSubstr("zz.tar"));
  EXPECT_THAT(std::string(name.message()),
              HasSubstr("sources[].path begins in the configuration's folder"));
  const absl::Status glob = ExpandError("z*.tar");
  EXPECT_EQ(glob.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(glob.message()), HasSubstr("z*.tar"));
  EXPECT_EQ(ExpandError("sub").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpandError("{a").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ballast
