// What the last release promised still stands.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/docs/promise.h"
#include "tests/docs/proto_reference.h"
#include "trainer_shim/tensor_table.h"

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

// docs/reference must agree with proto/*.proto.

TEST(ReferenceTest, IsWhatTheProtosSay) {
  for (const ReferencePage& page : MakeReference()) {
    std::ifstream file(page.path);
    std::ostringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(text.str() == page.text)
        << page.path << " is stale: bazel run //tests/docs:make_reference";
  }
}

TEST(ReferenceTest, HasWhatCommentsHold) {
  const std::vector<ReferencePage> pages = MakeReference();
  // A key with its range, a choice, a section of a map; an RPC and a field.
  for (const char* part : {"- **`skip_below`**: a number from 0 to 1000.",
                           "- `hybrid`: `direct` between ranks of one server",
                           "## `topology.modules.NAME`",
                           "## `balance.cost_changes[].cost.vision`"}) {
    EXPECT_THAT(pages[0].text, ::testing::HasSubstr(part));
  }
  for (const char* part :
       {"## ballast.v1.LoaderService",
        "### Pull\n\n`stream PullRequest` -> `stream PullResponse`",
        "- **`credit`** (uint64, 6)\n  Bytes of blocks that the client has "
        "room for."}) {
    EXPECT_THAT(pages[1].text, ::testing::HasSubstr(part));
  }
}

// The table of tensors in docs/thd_format.md is the table of the library.

std::string WantedTable() {
  std::string text =
      "| tensor | type | shape | ranks | joins | memory | contents |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  const std::shared_ptr<const TensorTable> table = MakeTensorTable();
  for (const TensorRow& row : *table) {
    absl::StrAppend(&text, "| ", row.name, " | ", ElementName(row.type), " | ",
                    row.shape, " | ", GetReceivers(row.field), " | ",
                    JoinName(row.join), " | ", MemoryName(row.memory), " | ",
                    row.contents, " |\n");
  }
  return text;
}

TEST(TensorTableTest, IsOnThePage) {
  std::ifstream file("docs/thd_format.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_THAT(page.str(), ::testing::HasSubstr(WantedTable()))
      << "docs/thd_format.md: replace its first table with this one:\n"
      << WantedTable();
}

}  // namespace
}  // namespace ballast
