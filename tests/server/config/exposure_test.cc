#include "server/config/exposure.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

TEST(ParseConfiguredAddressTest, WantsAbsolutePaths) {
  EXPECT_EQ(ParseConfiguredAddress("unix:/run/a.sock").value().path,
            "/run/a.sock");
  EXPECT_TRUE(ParseConfiguredAddress("unix:/" + std::string(106, 'a')).ok());
  for (const std::string& text :
       {std::string("unix:a.sock"), std::string("unix:"),
        "unix:/" + std::string(107, 'a')}) {
    EXPECT_THAT(
        std::string(ParseConfiguredAddress(text).status().message()),
        HasSubstr("; wanted unix: and an absolute path of at most 107 bytes"));
  }
}

TEST(ParseConfiguredAddressTest, SaysWhatWasFoundAndWanted) {
  EXPECT_EQ(ParseConfiguredAddress("10.0.0.1:7070").value().port, 7070);
  EXPECT_EQ(
      ParseConfiguredAddress("node").status(),
      absl::InvalidArgumentError("found node; wanted unix:/path or host:port"));
}

}  // namespace
}  // namespace ballast
