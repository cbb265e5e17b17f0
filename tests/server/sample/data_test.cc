
#include <string>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "gtest/gtest.h"
#include "server/sample/data_fault.h"

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

TEST(DataFaultTest, TravelsAsAStatus) {
  const DataFault fault("PNG is truncated");
  EXPECT_EQ(ToDataFault(fault.ToStatus()), fault);
  EXPECT_EQ(DataFaultError("PNG is truncated"), fault.ToStatus());
}

TEST(DataFaultTest, MayHaveAnyCode) {
  const absl::Status status = AsDataFault(absl::DataLossError("cut"));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ToDataFault(status), DataFault("cut"));
}

TEST(DataFaultTest, OnlyMarkedStatusesAreSeparated) {
  const auto fault = SeparateFault<int>(DataFaultError("cut"));
  ASSERT_TRUE(fault.ok());
  EXPECT_EQ(fault->fault(), DataFault("cut"));
  EXPECT_EQ(SeparateFault<int>(absl::DataLossError("cut")).status(),
            absl::DataLossError("cut"));
}

TEST(DataFaultTest, AnnotateKeepsIt) {
  const absl::Status status =
      Annotate(DataFaultError("PNG is truncated"), "image 3");
  EXPECT_EQ(ToDataFault(status), DataFault("PNG is truncated").In("image 3"));
}

TEST(DataFaultTest, NoCodeAloneIsOne) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "reason");
    EXPECT_FALSE(IsDataFault(status)) << status;
    EXPECT_EQ(ToDataFault(status), std::nullopt) << status;
  }
}

}  // namespace
}  // namespace ballast
