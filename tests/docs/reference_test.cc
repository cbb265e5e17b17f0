// docs/reference must agree with proto/*.proto.

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/docs/proto_reference.h"

namespace ballast {
namespace {

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

}  // namespace
}  // namespace ballast
