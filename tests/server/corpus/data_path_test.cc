#include "server/corpus/data_path.h"

#include <string>

#include "gtest/gtest.h"

namespace ballast {
namespace {

TEST(DataPathTest, AcceptsPathsThatStayInside) {
  for (const absl::string_view path :
       {"a.jpg", "./a.jpg", "a/b/c.jpg", "..a/b..", "a/...", "é.jpg"}) {
    EXPECT_TRUE(CheckDataPath(path).ok()) << path;
  }
  EXPECT_TRUE(CheckDataPath(std::string(4096, 'a')).ok());
}

TEST(DataPathTest, RefusesOtherPathsWithTheReason) {
  EXPECT_EQ(CheckDataPath("").message(), "path \"\" is empty");
  EXPECT_EQ(CheckDataPath("/a").message(), "path \"/a\" is absolute");
  EXPECT_EQ(CheckDataPath("..").message(), "path \"..\" holds \"..\"");
  EXPECT_EQ(CheckDataPath("a/../b").message(), "path \"a/../b\" holds \"..\"");
  EXPECT_EQ(CheckDataPath(std::string("a\0b", 3)).message(),
            "path \"a\\000b\" holds a control character");
  EXPECT_EQ(CheckDataPath("a\xff").message(), "path \"a\\377\" is not UTF-8");
  EXPECT_EQ(
      CheckDataPath(std::string(4097, 'a')).message(),
      "path \"" + std::string(200, 'a') + "...\" is over 4096 bytes long");
}

TEST(DataPathTest, PrintsAnyBytes) {
  EXPECT_EQ(Printable("é\n"), "é\\n");
  EXPECT_EQ(Printable("\xc3"), "\\303");
  // The cut would be inside the two bytes of an é: the é is dropped, and the
  // rest stays readable.
  EXPECT_EQ(Printable("é" + std::string(197, 'a') + "éé"),
            "é" + std::string(197, 'a') + "...");
}

}  // namespace
}  // namespace ballast
