// What Python's json.dumps writes and json.loads reads, and no standard does.
#include "server/data/jsonl/python_json.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(PythonJsonTest, BecomesJson) {
  EXPECT_EQ(FromPythonJson(R"({"a": NaN, "b": [Infinity, -Infinity]})"),
            R"({"a": null, "b": [null, null]})");
  EXPECT_EQ(FromPythonJson(
                "{\"a\": 18446744073709551616, \"b\": -12345678901234567890}"),
            "{\"a\": 18446744073709551616.0, \"b\": -12345678901234567890.0}");
  EXPECT_EQ(FromPythonJson("\xEF\xBB\xBF[1]"), "[1]");
}

TEST(PythonJsonTest, LeavesTheRest) {
  for (const char* json :
       {R"({"a": "NaN \" Infinity 18446744073709551616"})",
        R"({"NaN": 123456789012345678, "b": 1.2345678901234567890123e-5})",
        R"({"a": 1e400, "b": "\\"})", "{broken", "\"open"}) {
    EXPECT_EQ(FromPythonJson(json), json);
  }
}

}  // namespace
}  // namespace ballast
