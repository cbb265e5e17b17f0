// The example in docs/configuration.md loads.

#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "server/config/config_loader.h"

namespace ballast {
namespace {

std::string ReadPage() {
  std::ifstream file("docs/configuration.md");
  EXPECT_TRUE(file.is_open());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST(ConfigurationPage, ItsExampleLoads) {
  const std::string page = ReadPage();
  const std::string fence = "```yaml\n";
  const size_t begin = page.find(fence);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = page.find("```", begin + fence.size());
  const auto loaded =
      ParseConfig(page.substr(begin + fence.size(), end - begin - fence.size()),
                  "docs/configuration.md", ".");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.sources_size(), 2);
  EXPECT_EQ(loaded->config.serve().max_bad_samples(), 100u);
}

}  // namespace
}  // namespace ballast
