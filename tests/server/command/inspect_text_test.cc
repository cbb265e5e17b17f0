#include "server/command/inspect_text.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using ::testing::HasSubstr;

absl::Status Inspect(const std::string& input, std::string* output) {
  std::istringstream in(input);
  std::ostringstream out;
  const absl::Status status = InspectText(**MakeTokenizer("bytes"), in, out);
  *output = out.str();
  return status;
}

TEST(InspectTextTest, WritesOneLineOfIdsPerText) {
  std::string output;
  ASSERT_TRUE(
      Inspect("{\"text\": \"A\\u00e4\"}\n\n{\"text\": \"\", \"x\": 1}", &output)
          .ok());
  EXPECT_EQ(output, "{\"ids\":[65,195,164]}\n{\"ids\":[]}\n");
}

TEST(InspectTextTest, NamesBadLines) {
  std::string output;
  for (const char* bad : {"{\"text\": 1}", "{}", "[]", "\"text\"", "{", "x"}) {
    const absl::Status status =
        Inspect(std::string("{\"text\": \"a\"}\n\n") + bad + "\n", &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 3")) << bad;
    EXPECT_EQ(output, "{\"ids\":[97]}\n");
  }
}

}  // namespace
}  // namespace ballast
