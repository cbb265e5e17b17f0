#include "server/command/commands.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ballast {
namespace {

namespace fs = std::filesystem;

int RunLine(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ballast-server", "make-corpus"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CommandLine line("ballast-server", "test");
  AddMakeCorpus(&line);
  return line.Run(static_cast<int>(argv.size()), argv.data());
}

TEST(MakeCorpusTest, WritesShardsAndAConfiguration) {
  const std::string out = ::testing::TempDir() + "/make_corpus_test";
  fs::remove_all(out);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "2", "--preset", "text",
                     "--seed", "18446744073709551615"}),
            0);
  EXPECT_TRUE(fs::exists(out + "/docs-000000.tar"));
  EXPECT_TRUE(fs::exists(out + "/ballast.yaml"));
}

TEST(MakeCorpusTest, BadLinesWriteNothing) {
  const std::string out = ::testing::TempDir() + "/make_corpus_bad";
  fs::remove_all(out);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "0"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "-1"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "1", "--seed", "-1"}), 2);
  EXPECT_EQ(RunLine({"--out", out}), 2);
  EXPECT_EQ(RunLine({"--samples", "1"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "1", "--preset", "photos"}), 2);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace ballast
