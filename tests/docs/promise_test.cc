// What the last release promised still stands.

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/docs/promise.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(PromiseTest, HoldsWhatWasReleased) {
  std::ifstream file("docs/reference/promise.txt");
  std::vector<std::string> released;
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "#")) released.push_back(line);
  }
  ASSERT_GT(released.size(), 800);
  EXPECT_THAT(FindBroken(released, ListPromise()), IsEmpty())
      << "docs/upgrading.md says what a release keeps. Add beside it, or raise "
         "the version and write the change into CHANGELOG.md and into "
         "docs/reference/promise.txt.";
}

TEST(PromiseTest, ListsEachKind) {
  const std::string lines = absl::StrJoin(ListPromise(), "\n");
  for (const char* line :
       {"\nfield ballast.v1.Serve.memory = 4 uint64, default 8GiB\n",
        "\nvalue ballast.v1.Delivery.DELIVERY_HYBRID = 3\n",
        "\nrpc ballast.v1.LoaderService.Pull(stream PullRequest) -> stream "
        "PullResponse\n",
        "\nc const char* ballast_version(void)\n",
        "\nc struct ballast_shim_options { uint32_t struct_size; int32_t "
        "module; ",
        "\npython ballast.Loader\n", "\nformat kBlockVersion "}) {
    EXPECT_THAT(lines, HasSubstr(line));
  }
}

TEST(PromiseTest, MayOnlyGrow) {
  const std::vector<std::string> released = {
      "field ballast.v1.A.b = 1 uint32, default 2", "format kBlockVersion 4",
      "c int ballast_f(int a)", "c struct ballast_s { int a;"};
  EXPECT_THAT(FindBroken(released, released), IsEmpty());
  // More of everything, and a longer struct.
  std::vector<std::string> grown = released;
  grown.push_back("field ballast.v1.A.c = 2 uint32");
  grown[3] += " int b;";
  EXPECT_THAT(FindBroken(released, grown), IsEmpty());
  // Each line otherwise, or gone.
  EXPECT_THAT(
      FindBroken(released, {"field ballast.v1.A.b = 1 uint32, default 3",
                            "c int ballast_f(long a)",
                            "c struct ballast_s { int b; int a;"}),
      ElementsAre(
          HasSubstr("is now field ballast.v1.A.b = 1 uint32, default 3"),
          HasSubstr("is gone"), HasSubstr("is now c int"),
          HasSubstr("is now c struct")));
  EXPECT_THAT(FindBroken(released, {}), SizeIs(4));
}

}  // namespace
}  // namespace ballast
