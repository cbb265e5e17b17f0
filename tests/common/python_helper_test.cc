#include "common/python_helper.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr char kPython[] = "/usr/bin/python3";

// A folder of data as working directory, with files that are named as modules
// of Python's library. Each would leave a mark.
class HostileFolderTest : public ::testing::Test {
 protected:
  HostileFolderTest() : before_(fs::current_path()) {
    folder_ = fs::path(::testing::TempDir()) / "data";
    fs::create_directories(folder_);
    for (const char* module :
         {"ctypes", "encodings", "os", "resource", "signal", "site",
          "sitecustomize", "struct", "sys", "types", "usercustomize"}) {
      std::ofstream(folder_ / absl::StrCat(module, ".py"))
          << "open('" << (folder_ / "ran").string() << "', 'a').write('"
          << module << "\\n')\n";
    }
    fs::current_path(folder_);
  }
  ~HostileFolderTest() override { fs::current_path(before_); }

  const fs::path before_;
  fs::path folder_;
};

TEST_F(HostileFolderTest, NoCodeOfTheWorkingDirectoryRuns) {
  if (access(kPython, X_OK) != 0) GTEST_SKIP() << "there is no python3";
  // The server's environment is not the helper's.
  setenv("PYTHONPATH", folder_.c_str(), 1);
  setenv("PYTHONSTARTUP", (folder_ / "struct.py").c_str(), 1);
  HelperProcess helper({.name = "the test's helper", .libraries = "none"},
                       [] { return StartPython(kPython); });
  std::string answer;
  const absl::Status status = helper.Ask([&]() -> absl::Status {
    BALLAST_RETURN_IF_ERROR(SendModules(&helper, {{"told", R"(
import os, sys, ballast_helper
kind, request = ballast_helper.read_request()
paths = [path for path in sys.path if not path.startswith("/")]
ballast_helper.answer(0, f"{os.getcwd()} {paths}".encode())
ballast_helper.read_request()
)"}}));
    BALLAST_RETURN_IF_ERROR(helper.Send(2, {}));
    uint32_t kind = 1;
    return helper.Receive(1000, &kind, &answer);
  });
  unsetenv("PYTHONPATH");
  unsetenv("PYTHONSTARTUP");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(answer, "/ []");
  EXPECT_FALSE(fs::exists(folder_ / "ran"));
}

TEST_F(HostileFolderTest, FindsNoInterpreterThere) {
  fs::remove(folder_ / "python3");
  fs::create_symlink("/bin/true", folder_ / "python3");
  const std::string path = getenv("PATH");
  setenv("PATH", absl::StrCat(".::", path).c_str(), 1);
  const std::vector<std::string> found = FindPythons();
  setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(found, ::testing::Each(::testing::StartsWith("/")));
}

}  // namespace
}  // namespace ballast
