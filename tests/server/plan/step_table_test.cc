#include "server/plan/step_table.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(StepTableTest, DamageIsNoTable) {
  const std::string path = ::testing::TempDir() + "/steps";
  const std::vector<uint64_t> starts = {0, 8, 12, 40};
  EXPECT_TRUE(LoadStepTable(path + ".absent").empty());
  ASSERT_TRUE(SaveStepTable(path, starts).ok());
  EXPECT_EQ(LoadStepTable(path), starts);
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  ASSERT_EQ(bytes.size(), 8u * 7);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 1;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_TRUE(LoadStepTable(path).empty()) << i;
    std::ofstream(path, std::ios::binary) << bytes.substr(0, i);
    EXPECT_TRUE(LoadStepTable(path).empty()) << i;
  }
  EXPECT_EQ(SaveStepTable("/dev/null/steps", starts).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ballast
