// `ballast-server index --check`, --shard and --merge, and `inspect index`.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/command_line.h"
#include "server/command/commands.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class IndexCheckCommandTest : public ::testing::Test {
 protected:
  // Three images for engines, of which one is damaged, and a progressive one.
  IndexCheckCommandTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/media");
    std::string damaged = MakeJpeg({.width = 90, .height = 90});
    damaged.erase(damaged.size() / 2, 5);
    const std::vector<std::string> images = {MakeJpeg({}), damaged,
                                             MakeJpeg({.progressive = true}),
                                             MakeJpeg({.width = 40})};
    std::ofstream lines(folder_ + "/a.jsonl");
    for (size_t i = 0; i < images.size(); ++i) {
      const std::string name = std::to_string(i) + ".jpg";
      std::ofstream(folder_ + "/media/" + name, std::ios::binary) << images[i];
      lines << R"({"image": ")" << name << R"(", "conversations": )"
            << R"([{"from": "human", "value": "<image>Why?"},)"
            << R"( {"from": "gpt", "value": "So."}]})"
            << "\n";
    }
    std::ofstream(config_) << R"(
sources: [{name: chat, format: jsonl, path: a.jsonl, media_root: media}]
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  }

  // The output of `ballast-server PART… --config F MORE…`, which exits with
  // `wanted`.
  std::string Run(std::vector<std::string> arguments, int wanted = 0) {
    arguments.insert(arguments.begin(), "ballast-server");
    arguments.insert(arguments.end(), {"--config", config_});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    CommandLine line("ballast-server", "test");
    AddIndex(&line);
    AddInspectIndex(&line, line.AddGroup("inspect", "test", ""));
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = line.Run(static_cast<int>(argv.size()), argv.data());
    const std::string out = ::testing::internal::GetCapturedStdout();
    const std::string error = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(code == 0, wanted == 0) << out << error;
    return out + error;
  }

  const std::string folder_ = ::testing::TempDir() + "/index_check_command";
  const std::string config_ = folder_ + "/ballast.yaml";
};

constexpr char kChecked[] =
    "  JPEG engines may decode 3 of 4 images: 2 clean, 1 unsound\n"
    "  the server decodes: 1 not baseline of 8 bits\n";

TEST_F(IndexCheckCommandTest, BuildsAndChecks) {
  const std::string checked = Run({"index", "--check"});
  EXPECT_THAT(checked, HasSubstr("chat: 4 samples, 4 images"));
  EXPECT_THAT(checked, HasSubstr("chat: 3 images checked: 2 clean, 1 unsound, "
                                 "0 changed\n"));
  EXPECT_THAT(checked, HasSubstr("  left to the server: a.jsonl:2: image 0: "
                                 "JPEG: MCU "));
  EXPECT_THAT(checked, HasSubstr(kChecked));
  // A second run has nothing to do.
  const std::string again = Run({"index", "--check"});
  EXPECT_THAT(again, HasSubstr("index is up to date"));
  EXPECT_THAT(again, HasSubstr("chat: 0 images checked"));
  EXPECT_THAT(again, HasSubstr(kChecked));
}

TEST_F(IndexCheckCommandTest, ChecksInShards) {
  EXPECT_THAT(Run({"index", "--check", "--shard", "1/2"}, 1),
              HasSubstr("run `ballast-server index --config F`"));
  Run({"index"});
  EXPECT_THAT(Run({"index", "--check", "--shard", "2/2"}),
              HasSubstr("chat: shard 2/2: 3 images checked: 2 clean"));
  EXPECT_THAT(Run({"index", "--merge"}), HasSubstr("chat: merged\n"));
  EXPECT_THAT(Run({"inspect", "index"}),
              HasSubstr(R"({"source":"chat","samples":4,"images":4,)"
                        R"("marked":3,"checked":3,"clean":2,"unsound":1,)"
                        R"("changed":0,)"
                        R"("refusals":{"not baseline of 8 bits":1}})"));
}

TEST_F(IndexCheckCommandTest, CountsBeforeACheck) {
  constexpr char kNotChecked[] =
      "  JPEG engines may decode 3 of 4 images: 3 not checked\n";
  EXPECT_THAT(Run({"index"}), Not(HasSubstr("JPEG")));
  std::ofstream(config_, std::ios::app) << "model: {decode: device}\n";
  EXPECT_THAT(Run({"index"}), HasSubstr(kNotChecked));
  EXPECT_THAT(Run({"index", "--rebuild"}), HasSubstr(kNotChecked));
  EXPECT_THAT(Run({"inspect", "index"}),
              HasSubstr(R"("marked":3,"checked":0,"clean":0)"));
}

TEST_F(IndexCheckCommandTest, RefusesWhatDoesNotFit) {
  Run({"index"});
  EXPECT_THAT(Run({"index", "--check", "--shard", "3/2"}, 1),
              HasSubstr("shard 3/2, wanted I/N"));
  EXPECT_THAT(Run({"index", "--rebuild", "--check", "--shard", "1/2"}, 1),
              HasSubstr("--shard and --merge work on the index as it is"));
  EXPECT_THAT(Run({"index", "--merge"}, 1),
              HasSubstr("no results of a check of this index"));
  EXPECT_THAT(Run({"index", "--shard", "1/2"}),
              HasSubstr("index is up to date"));
  EXPECT_THAT(Run({"index", "--shard", "1/2", "--merge"}, 1),
              HasSubstr("give one of them"));
}

}  // namespace
}  // namespace ballast
