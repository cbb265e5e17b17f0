#include "server/command/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// The output of the command; fails the test unless it has this exit status.
std::string Index(const std::string& config,
                  const std::vector<std::string>& more = {}, int status = 0) {
  std::vector<std::string> arguments = {"ballast-server", "index", "--config",
                                        config};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CommandLine line("ballast-server", "test");
  AddIndex(&line);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(line.Run(static_cast<int>(argv.size()), argv.data()), status);
  return ::testing::internal::GetCapturedStdout();
}

TEST(IndexTest, WarnsOfFilesListedTwice) {
  const std::string folder = ::testing::TempDir() + "/index_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : {"a", "b"}) {
    std::ofstream(folder + "/" + name + ".jsonl")
        << R"({"conversations": [{"from": "human", "value": "Why?"},)"
        << R"( {"from": "gpt", "value": "So."}]})"
        << "\n";
  }
  fs::create_symlink("a.jsonl", folder + "/link.jsonl");
  const std::string config = folder + "/ballast.yaml";
  std::ofstream(config) << R"(
sources:
  - {name: first, format: jsonl, path: a.jsonl}
  - {name: second, format: jsonl, path: "{b,link}.jsonl"}
  - {name: third, format: jsonl, path: "b.jsonl"}
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  const std::string shared =
      "warning: source second has link.jsonl, which is in source first too, "
      "as a.jsonl: its samples come more often than the weights say\n";
  const std::string built = Index(config);
  EXPECT_THAT(built, HasSubstr(shared));
  EXPECT_THAT(built, HasSubstr("second: 2 samples"));
  EXPECT_THAT(built, HasSubstr("source third has b.jsonl, which is in source "
                               "second too, as b.jsonl"));
  EXPECT_THAT(built, Not(HasSubstr("source first has")));
  // An up-to-date index has the same files.
  EXPECT_THAT(Index(config), HasSubstr(shared));
}

TEST(IndexTest, ReportsHowMuchItReused) {
  const std::string folder = ::testing::TempDir() + "/index_reuse_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/a.jsonl")
      << R"({"conversations": [{"from": "human", "value": "Why?"}]})"
      << "\nnonsense\n"
      << R"({"conversations": [{"from": "gpt", "value": "So."}]})"
      << "\n";
  const auto index = [&](const std::string& model, int max_tokens) {
    std::ofstream(folder + "/ballast.yaml")
        << "sources: [{name: chat, format: jsonl, path: a.jsonl, "
        << "index: chat.index}]\n"
        << "model: {profile: qwen2_5_vl" << model << "}\n"
        << "batch: {global: 2, micro: 2, max_tokens: " << max_tokens << "}\n"
        << "topology: {modules: {language: {dp: 2}}}\n";
    return Index(folder + "/ballast.yaml");
  };
  EXPECT_THAT(index("", 100), Not(HasSubstr("reused")));
  EXPECT_THAT(index("", 100), HasSubstr("2 samples, index is up to date"));
  const std::string other_template = index(", system_prompt: Be kind", 100);
  EXPECT_THAT(other_template,
              HasSubstr("stale index: it was built with another tokenizer, "
                        "chat template or token id"));
  EXPECT_THAT(other_template,
              HasSubstr("reused: places and image sizes of 2 samples in 1 "
                        "files, text lengths of 0\n"));
  EXPECT_THAT(other_template, HasSubstr(", sample 2: not JSON"));
  EXPECT_THAT(index(", system_prompt: Be kind", 200),
              HasSubstr("2 samples in 1 files, text lengths of 2\n"));
}

TEST(IndexTest, VerifyFindsDamageInPagesNotYetRead) {
  const std::string folder = ::testing::TempDir() + "/index_verify_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/a.jsonl")
      << R"({"conversations": [{"from": "human", "value": "Why?"}]})"
      << "\n";
  const std::string config = folder + "/ballast.yaml";
  std::ofstream(config) << R"(
sources: [{name: chat, format: jsonl, path: a.jsonl, index: chat.index}]
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  Index(config);
  EXPECT_THAT(Index(config, {"--verify"}),
              HasSubstr("1 samples, index is up to date and undamaged\n"));
  const std::string index = folder + "/chat.index";
  {
    // Records begin at byte 4096.
    std::fstream file(index, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4100);
    file.put('x');
  }
  EXPECT_THAT(Index(config), HasSubstr("index is up to date\n"));
  const std::string verified = Index(config, {"--verify"});
  EXPECT_THAT(verified, HasSubstr("chat: 1 samples, 0 images"));
  EXPECT_THAT(verified,
              HasSubstr("rebuilt: " + index +
                        ": damaged index: bytes 4096 to 8191 are not what was "
                        "written"));
  EXPECT_THAT(verified, Not(HasSubstr("reused")));
  EXPECT_THAT(Index(config, {"--verify"}), HasSubstr("undamaged"));
}

// Servers refuse it: an index that fails says so before they are started.
TEST(IndexTest, ASourceWithoutASampleIsAnError) {
  const std::string folder = ::testing::TempDir() + "/index_empty_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::ofstream(folder + "/good.jsonl")
      << R"({"conversations": [{"from": "human", "value": "Why?"}]})"
      << "\n";
  const std::string config = folder + "/ballast.yaml";
  std::ofstream(config) << R"(
sources:
  - {name: good, format: jsonl, path: good.jsonl}
  - {name: none, format: jsonl, path: none.jsonl}
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  for (const auto& [text, fault] :
       {std::pair("", "source none: its index holds no sample"),
        std::pair("nonsense\n", "source none: 1 of 1 records are bad")}) {
    std::ofstream(folder + "/none.jsonl") << text;
    for (int run = 0; run < 2; ++run) {  // the second finds it up to date
      ::testing::internal::CaptureStderr();
      EXPECT_THAT(Index(config, {}, /*status=*/1),
                  HasSubstr("none: 0 samples"));
      EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(fault));
    }
  }
}

TEST(IndexTest, AConfigurationPathMayBeRelative) {
  const fs::path before = fs::current_path();
  const std::string folder = ::testing::TempDir() + "/index_relative_test";
  fs::remove_all(folder);
  fs::create_directories(folder + "/job/media");
  std::ofstream(folder + "/job/a.jsonl")
      << R"({"conversations": [{"from": "human", "value": "Why?"}]})"
      << "\n";
  std::ofstream(folder + "/job/ballast.yaml") << R"(
sources: [{name: chat, format: jsonl, path: a.jsonl, media_root: media}]
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  fs::current_path(folder);
  EXPECT_THAT(Index("job/ballast.yaml"), HasSubstr("chat: 1 samples"));
  EXPECT_FALSE(fs::is_empty(folder + "/job/.ballast"));
  fs::current_path(before);
}

// `ballast-server index --check`, --shard and --merge, and `inspect index`.

namespace fs = std::filesystem;

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
              HasSubstr("run `ballast-server index --config " + config_ + "`"));
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
