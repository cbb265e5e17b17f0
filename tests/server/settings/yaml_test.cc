#include "server/settings/key_report.h"

#include <gtest/gtest.h>

#include <string>

#include "server/settings/yaml.h"

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

TEST(ParseByteSize, ReadsUnits) {
  EXPECT_EQ(ParseByteSize("0"), 0u);
  EXPECT_EQ(ParseByteSize("1024"), 1024u);
  EXPECT_EQ(ParseByteSize("9223372036854775807"), (uint64_t{1} << 63) - 1);
  EXPECT_EQ(ParseByteSize("1e9"), 1000000000u);
  EXPECT_EQ(ParseByteSize("7B"), 7u);
  EXPECT_EQ(ParseByteSize("2KiB"), 2048u);
  EXPECT_EQ(ParseByteSize("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(ParseByteSize("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(ParseByteSize("1TiB"), uint64_t{1} << 40);
  EXPECT_EQ(ParseByteSize("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseByteSize("2kB"), 2000u);
  EXPECT_EQ(ParseByteSize("2MB"), 2000000u);
  EXPECT_EQ(ParseByteSize("2GB"), 2000000000u);
}

TEST(ParseByteSize, RefusesOtherText) {
  for (const char* text :
       {"", "GiB", "8gib", "8 GiB", "-1", "-1GiB", "1.5", "0.1KiB", "1e99",
        "99999999999999999999", "9223372036854775808", "8EiB", "inf", "0x10",
        "1GiBGiB", "auto"}) {
    EXPECT_FALSE(ParseByteSize(text).has_value()) << text;
  }
}

TEST(ParseCount, ReadsPowersOf1024) {
  EXPECT_EQ(ParseCount("7"), 7u);
  EXPECT_EQ(ParseCount("512Ki"), 524288u);
  EXPECT_EQ(ParseCount("4Mi"), 4194304u);
  EXPECT_EQ(ParseCount("1.5Ki"), 1536u);
  EXPECT_EQ(ParseCount("1Ti"), uint64_t{1} << 40);
  for (const char* text : {"", "Mi", "4M", "4MiB", "4 Mi", "-1", "4mi", "i",
                           "1.5", "9Ei", "1e3"}) {
    EXPECT_FALSE(ParseCount(text).has_value()) << text;
  }
}

TEST(ParseUnsigned, AcceptsOnlyDigits) {
  EXPECT_EQ(ParseUnsigned("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(ParseUnsigned("007"), 7u);
  for (const char* text : {"", "+1", "-1", " 1", "1 ", "1.0", "1e3", "0x1",
                           "18446744073709551616"}) {
    EXPECT_FALSE(ParseUnsigned(text).has_value()) << text;
  }
}

TEST(ParseSigned, AcceptsASign) {
  EXPECT_EQ(ParseSigned("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(ParseSigned("+5"), 5);
  for (const char* text :
       {"", "-", "--1", "-+1", "9223372036854775808", "1.0"}) {
    EXPECT_FALSE(ParseSigned(text).has_value()) << text;
  }
}

TEST(ParseReal, AcceptsFiniteDecimals) {
  EXPECT_EQ(ParseReal("-0.5"), -0.5);
  EXPECT_EQ(ParseReal("1e-3"), 1e-3);
  EXPECT_EQ(ParseReal(".5"), 0.5);
  for (const char* text : {"", "nan", "inf", "-infinity", "0x1p3", "1e999", "e",
                           "1e", "1,5", " 1"}) {
    EXPECT_FALSE(ParseReal(text).has_value()) << text;
  }
}

TEST(ParseBool, AcceptsTrueAndFalse) {
  EXPECT_EQ(ParseBool("true"), true);
  EXPECT_EQ(ParseBool("false"), false);
  for (const char* text : {"", "True", "yes", "on", "1"}) {
    EXPECT_FALSE(ParseBool(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace ballast
