#include "server/config/key_report.h"

#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(KeyReport, LocatesAMissingKeyAtItsSection) {
  KeyReport report;
  report.AddKey("a", {3, 1});
  report.AddKey("a[1].b", {5, 7});
  EXPECT_TRUE(report.Has("a"));
  EXPECT_FALSE(report.Has("a[1]"));
  EXPECT_EQ(report.Locate("a[1].b").column, 7);
  EXPECT_EQ(report.Locate("a[1].b.c").line, 5);
  EXPECT_EQ(report.Locate("a[1].c").line, 3);
  EXPECT_EQ(report.Locate("b.c").line, 1);
}

TEST(KeyReport, AFaultMarksEnclosingAndInnerKeys) {
  KeyReport report;
  EXPECT_FALSE(report.HasFaultWithin(""));
  report.AddFault("a[0].b", "x");
  EXPECT_TRUE(report.IsFaulty("a[0].b"));
  EXPECT_TRUE(report.IsFaulty("a[0].b.c[2]"));
  EXPECT_FALSE(report.IsFaulty("a[0]"));
  EXPECT_FALSE(report.IsFaulty("a[0].bc"));
  EXPECT_TRUE(report.HasFaultWithin("a[0].b.c"));
  EXPECT_TRUE(report.HasFaultWithin("a[0]"));
  EXPECT_TRUE(report.HasFaultWithin("a"));
  EXPECT_TRUE(report.HasFaultWithin(""));
  EXPECT_FALSE(report.HasFaultWithin("a[0].c"));
  EXPECT_FALSE(report.HasFaultWithin("a[1]"));
}

TEST(KeyReport, ListsFaultsByPosition) {
  KeyReport report;
  EXPECT_TRUE(report.ToStatus("F").ok());
  report.AddKey("late", {9, 1});
  report.AddKey("early", {2, 8});
  report.AddFault("late", "1");
  report.AddFault("early", "2");
  report.AddFaultAt({2, 3}, "early", "3");
  report.AddMissing("early.x", "y");
  report.AddFault("", "4");
  EXPECT_EQ(std::string(report.ToStatus("F").message()),
            "F:1: 4\n"
            "F:2: early: 3\n"
            "F:2: early: 2\n"
            "F:2: early.x: missing; wanted y\n"
            "F:9: late: 1");
}

TEST(SuggestName, SuggestsOnlySimilarNames) {
  EXPECT_EQ(SuggestName("mirco", {"global", "micro"}), "did you mean micro?");
  EXPECT_EQ(SuggestName("globl", {"global", "micro"}), "did you mean global?");
  EXPECT_EQ(SuggestName("up", {"dp", "tp"}), "did you mean dp?");
  EXPECT_EQ(SuggestName("other", {"global", "micro"}),
            "wanted one of global, micro");
  EXPECT_EQ(SuggestName(std::string(100000, 'm'), {"micro"}),
            "wanted one of micro");
}

TEST(Shown, IsPrintableAndShort) {
  EXPECT_EQ(Shown("plain text"), "plain text");
  EXPECT_EQ(Shown(""), "\"\"");
  EXPECT_EQ(Shown("a\nb\x01"), "a\\nb\\x01");
  EXPECT_EQ(Shown(std::string(61, 'a')), std::string(60, 'a') + "...");
}

}  // namespace
}  // namespace ballast
