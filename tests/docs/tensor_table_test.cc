// The table of tensors in docs/thd_format.md is the table of the library.

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "trainer_shim/tensor_table.h"

namespace ballast {
namespace {

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
