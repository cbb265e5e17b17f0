#include "server/corpus/data_fault.h"

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "gtest/gtest.h"

namespace ballast {
namespace {

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
