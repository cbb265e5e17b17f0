#include "server/command/commands.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(InspectLengthsTest, WritesOneArray) {
  const LognormalLengths lengths = {1024, 8192, 4096, 1.1};
  std::ostringstream out;
  ASSERT_TRUE(InspectLengths(lengths, 4, out).ok());
  EXPECT_EQ(out.str(), "[8192,3473,6564,8192]\n");
  std::ostringstream none;
  ASSERT_TRUE(InspectLengths(lengths, 0, none).ok());
  EXPECT_EQ(none.str(), "[]\n");
}

TEST(InspectLengthsTest, FaultsNameTheOption) {
  std::ostringstream out;
  const absl::Status status = InspectLengths({8, 4, 4, 1}, 4, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("--min is 8"));
  EXPECT_EQ(out.str(), "");
}

TEST(InspectLengthsTest, AFailingOutputEndsTheCommand) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(InspectLengths({1, 4, 4, 1}, ~uint64_t{0}, out).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ballast
