#include "common/table.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(TableTest, AlignsColumns) {
  Table table({{"module", Table::kLeft}, {"load"}, {"note", Table::kLeft}});
  table.AddRow({"vision", "12.50", "héavy"});
  table.AddRow({"ö", "100.25"});
  table.AddRule();
  table.AddRow({"sum", "112.75", "x", "dropped"});
  EXPECT_EQ(table.ToString(),
            "module    load  note\n"
            "------  ------  -----\n"
            "vision   12.50  héavy\n"
            "ö       100.25\n"
            "------  ------  -----\n"
            "sum     112.75  x\n");
}

TEST(TableTest, WithoutRowsShowsTitles) {
  EXPECT_EQ(Table({{"a"}, {"b"}}).ToString(), "a  b\n-  -\n");
}

}  // namespace
}  // namespace ballast
