#include "server/storage/local_copy.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace ballast {
namespace {

bool Exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

TEST(LocalCopyTest, IsThereAsLongAsItLives) {
  const std::string folder = ::testing::TempDir();
  auto copy = LocalCopy::Create(folder);
  ASSERT_TRUE(copy.ok()) << copy.status();
  const std::string path = (*copy)->path();
  ASSERT_TRUE((*copy)->Write("one").ok());
  ASSERT_TRUE((*copy)->Write("two").ok());
  // Others do not take it for one that was left.
  RemoveLeftCopies(folder);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "onetwo");
  *copy = nullptr;
  EXPECT_FALSE(Exists(path));
}

TEST(LocalCopyTest, RemovesWhatKilledProcessesLeft) {
  const std::string folder = ::testing::TempDir();
  const std::string left = folder + "/ballast-copy.Abc123";
  const std::string other = folder + "/ballast-copyright";
  std::ofstream(left) << "left";
  std::ofstream(other) << "other";
  RemoveLeftCopies(folder);
  EXPECT_FALSE(Exists(left));
  EXPECT_TRUE(Exists(other));
  EXPECT_FALSE(LocalCopy::Create(folder + "/none").ok());
}

}  // namespace
}  // namespace ballast
