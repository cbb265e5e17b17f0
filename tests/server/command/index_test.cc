#include "server/command/commands.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/command_line.h"

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
        << "sources: [{name: chat, format: jsonl, path: a.jsonl}]\n"
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
  EXPECT_THAT(other_template, HasSubstr("left out as before: 1 bad samples"));
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
sources: [{name: chat, format: jsonl, path: a.jsonl}]
batch: {global: 2, micro: 2}
topology: {modules: {language: {dp: 2}}}
)";
  Index(config);
  EXPECT_THAT(Index(config, {"--verify"}),
              HasSubstr("1 samples, index is up to date and undamaged\n"));
  const std::string index = folder + "/.ballast/chat.index";
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
  for (const char* text : {"", "nonsense\n"}) {
    std::ofstream(folder + "/none.jsonl") << text;
    for (int run = 0; run < 2; ++run) {  // the second finds it up to date
      ::testing::internal::CaptureStderr();
      EXPECT_THAT(Index(config, {}, /*status=*/1),
                  HasSubstr("none: 0 samples"));
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  HasSubstr("source none: its index holds no sample"));
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
  EXPECT_TRUE(fs::exists(folder + "/job/.ballast/chat.index"));
  fs::current_path(before);
}

}  // namespace
}  // namespace ballast
