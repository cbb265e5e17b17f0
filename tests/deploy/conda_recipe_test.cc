// deploy/conda/recipe.yaml, held against the wheel that it packs.
// tests/deploy/conda_package.py shows that rattler-build takes it, by hand: it
// is no package of Debian.

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/build_info.h"
#include "common/small_file.h"

namespace ballast {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kRecipe[] = "deploy/conda/recipe.yaml";

std::string GetText(const std::string& path) {
  const auto text = ReadSmallFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

std::set<std::string> GetTexts(const YAML::Node& list) {
  std::set<std::string> texts;
  for (const auto& one : list) texts.insert(one.as<std::string>());
  return texts;
}

class CondaRecipeTest : public ::testing::Test {
 protected:
  const YAML::Node recipe_ = YAML::Load(GetText(kRecipe));
};

TEST_F(CondaRecipeTest, PacksThisVersion) {
  EXPECT_EQ(recipe_["schema_version"].as<int>(), 1);
  EXPECT_EQ(recipe_["context"]["version"].as<std::string>(), kVersion);
  EXPECT_EQ(recipe_["package"]["name"].as<std::string>(), "ballast");
  // The head says how it is built, with a wheel of this version.
  EXPECT_THAT(GetText(kRecipe),
              HasSubstr(absl::StrCat("ballast_loader-", kVersion,
                                     "-py3-none-manylinux")));
}

TEST_F(CondaRecipeTest, WantsWhatTheWheelWants) {
  const std::string wheel = GetText("trainer_shim/python/wheel.py");
  const std::set<std::string> run = GetTexts(recipe_["requirements"]["run"]);
  EXPECT_THAT(wheel, HasSubstr("Requires-Python: >=3.9\n"));
  EXPECT_THAT(run, Contains("python >=3.9"));
  // The tag that docs/decisions/0040 explains.
  EXPECT_THAT(run, Contains("__glibc >=2.34"));
  EXPECT_THAT(wheel, HasSubstr("Requires-Dist: torch>=2.1; extra"));
  EXPECT_THAT(GetTexts(recipe_["requirements"]["run_constraints"]),
              Contains("pytorch >=2.1"));
}

TEST_F(CondaRecipeTest, TriesEveryProgramOfTheWheel) {
  std::set<std::string> programs;
  const std::vector<std::string> parts = absl::StrSplit(
      GetText("trainer_shim/python/BUILD.bazel"), " --program $(location ");
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string label = parts[i].substr(0, parts[i].find(')'));
    programs.insert(label.substr(label.rfind(':') + 1));
  }
  ASSERT_EQ(programs.size(), 3);
  std::set<std::string> tried;
  for (const auto& test : recipe_["tests"]) {
    for (const std::string& command : GetTexts(test["script"])) {
      tried.insert(command);
    }
  }
  for (const std::string& program : programs) {
    const std::string name = program.substr(program.rfind('/') + 1);
    EXPECT_THAT(tried, Contains(absl::StrCat(name, " --version")));
  }
}

// The wheel's libraries find each other by names and paths of their own.
TEST_F(CondaRecipeTest, LeavesTheWheelsLibrariesAlone) {
  EXPECT_FALSE(
      recipe_["build"]["dynamic_linking"]["binary_relocation"].as<bool>());
  EXPECT_TRUE(
      recipe_["build"]["prefix_detection"]["ignore_binary_files"].as<bool>());
}

// The programs of the wheel, made anew where the package is installed.
TEST_F(CondaRecipeTest, RunsWithAnyPython) {
  const YAML::Node python = recipe_["build"]["python"];
  EXPECT_TRUE(python["version_independent"].as<bool>());
  const std::string wheel = GetText("trainer_shim/python/wheel.py");
  EXPECT_THAT(wheel, HasSubstr("ballast._programs:"));
  EXPECT_THAT(
      GetTexts(python["entry_points"]),
      UnorderedElementsAre("ballast = ballast.__main__:main",
                           "ballast-server = ballast._programs:ballast_server",
                           "ballastctl = ballast._programs:ballastctl",
                           "ballast-rank = ballast._programs:ballast_rank"));
}

}  // namespace
}  // namespace ballast
