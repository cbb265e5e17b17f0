#include "common/command_line.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/log.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int status = 0;
  std::string out, err;
  uint64_t number = 0;
  bool ran = false;
};

// `tool --at X [--json] go --number N [--kind a|b] [FILE...]`, and `tool group
// sub`.
Outcome RunTool(std::vector<std::string> words) {
  Outcome outcome;
  CommandLine line("tool", "Does things. More of it.", "  tool --at here go");
  line.program()->AllowOptionsAfterCommand();
  std::string at, kind = "a";
  std::vector<std::string> files;
  bool json = false;
  line.program()->AddText("--at", &at, "where").Required().TypeName("PLACE");
  line.program()->AddFlag("--json", &json, "for machines");
  Command* go = line.AddCommand(
      line.program(), "go", "Goes there (e.g. far).\nAnd back.", "  tool go",
      [&outcome] {
        outcome.ran = true;
        return outcome.number == 13 ? absl::InternalError("number 13\nis bad")
                                    : absl::OkStatus();
      });
  go->AddWholeNumber("--number", &outcome.number, "how many", 2).Required();
  go->AddText("--kind", &kind, "which").OneOf({"a", "b", "c"}).ShowDefault();
  go->AddTexts("FILE", &files, "what else");
  Command* group = line.AddGroup("group", "Holds others.", "  tool group sub");
  line.AddCommand(group, "sub", "Is one.", "  tool group sub",
                  [] { return absl::OkStatus(); });

  words.insert(words.begin(), "tool");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.status = line.Run(argv.size(), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandLineTest, RunsTheActionThatIsGiven) {
  const Outcome good = RunTool({"go", "--number", "12", "--at", "x"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_TRUE(good.ran);
  EXPECT_EQ(good.number, 12u);
  EXPECT_EQ(good.err, "");

  const Outcome failed = RunTool({"--at", "x", "go", "--number", "13"});
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(failed.err, "tool: number 13\ntool: is bad\n");
}

TEST(CommandLineTest, FaultsOfTheCommandLineAreEventsInAJsonLog) {
  for (const std::vector<std::string>& format :
       {std::vector<std::string>{"--log-format", "json"},
        std::vector<std::string>{"--log-format=json"}}) {
    std::vector<std::string> words = {"--at", "x", "go", "--nunber", "1\n2"};
    words.insert(words.end(), format.begin(), format.end());
    const Outcome failed = RunTool(words);
    SetLogFormat(LogFormat::kText);
    EXPECT_EQ(failed.status, 2);
    EXPECT_EQ(failed.err.find('\n'), failed.err.size() - 1);
    const auto line = nlohmann::json::parse(failed.err);
    EXPECT_EQ(line["level"], "error");
    EXPECT_EQ(line["message"],
              "tool go: unknown option --nunber; see `tool go --help`");
  }
}

TEST(CommandLineTest, ErrorsAreEventsInAJsonLog) {
  const Outcome failed =
      RunTool({"--at", "x", "go", "--number", "13", "--log-format", "json"});
  SetLogFormat(LogFormat::kText);
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.err,
              HasSubstr(R"("level":"error","message":"tool: number 13"})"));
  EXPECT_THAT(failed.err, HasSubstr(R"("message":"tool: is bad"})"));
}

TEST(CommandLineTest, AnErrorNamesCommandsToPaste) {
  const auto run = [](std::string file) {
    CommandLine line("tool", "Does things.");
    std::string config;
    line.AddCommand(line.program(), "go", "Goes.", "  tool go",
                    [] {
                      return absl::NotFoundError(
                          "run `tool index --config F --verify`");
                    })
        ->AddText("--config", &config, "file");
    std::vector<std::string> words = {"tool", "go"};
    if (!file.empty()) words.insert(words.end(), {"--config", file});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run(argv.size(), argv.data()), 1);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(run("a/b.yaml"),
            "tool: run `tool index --config a/b.yaml --verify`\n");
  EXPECT_EQ(run("my job's.yaml"),
            "tool: run `tool index --config 'my job'\\''s.yaml' --verify`\n");
  EXPECT_EQ(run(""), "tool: run `tool index --config F --verify`\n");
}

TEST(CommandLineTest, TheLogsLevelCanBeGiven) {
  RunTool({"--at", "x", "go", "--number", "12", "--log-level", "error"});
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  RunTool({"--at", "x", "go", "--number", "12"});
  EXPECT_EQ(CurrentLogLevel(), LogLevel::kError);
  SetLogLevel(LogLevel::kInfo);
}

TEST(CommandLineTest, EveryProgramKnowsItsVersion) {
  const Outcome outcome = RunTool({"--version"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(
                               "tool [0-9.]+\ncommit .*\nbuilt by .*\n"));
}

TEST(CommandLineTest, VersionIncludesAProgramsOwnBuildOptions) {
  CommandLine line("tool", "Does one thing.");
  line.SetBuildOptions("with wings");
  char name[] = "tool", version[] = "--version";
  char* argv[] = {name, version};
  testing::internal::CaptureStdout();
  EXPECT_EQ(line.Run(2, argv), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              ::testing::EndsWith(", with wings\n"));
}

TEST(CommandLineTest, AProgramWithoutCommandsRunsItsOwnAction) {
  CommandLine line("tool", "Does one thing.");
  bool ran = false;
  line.SetAction([&ran] {
    ran = true;
    return absl::OkStatus();
  });
  std::string name = "tool";
  char* argv[] = {name.data()};
  EXPECT_EQ(line.Run(1, argv), 0);
  EXPECT_TRUE(ran);
}

TEST(CommandLineTest, AWrongLineIsExplained) {
  const struct {
    std::vector<std::string> words;
    std::string error;  // its first line
  } kCases[] = {
      {{}, "tool: missing --at PLACE"},
      {{"--at", "x"}, "tool: missing a command, one of go, group"},
      {{"--at", "x", "og"},
       "tool: unknown command og; wanted one of go, group"},
      {{"--at", "x", "group", "usb"},
       "tool group: unknown command usb; wanted one of sub"},
      {{"go"}, "tool go: missing --number N, --at PLACE"},
      // Misspelt and therefore also missing.
      {{"--at", "x", "go", "--nubmer", "3"},
       "tool go: unknown option --nubmer"},
      {{"--at", "x", "group", "sub", "more"},
       "tool group sub: `more` is not expected here"},
      {{"--at", "x", "go", "--number", "1"},
       "tool go: --number: found 1; wanted a whole number, at least 2"},
      {{"--at", "x", "go", "--number", "-1"},
       "tool go: --number: found -1; wanted a whole number, at least 2"},
      {{"--at", "x", "go", "--number", "18446744073709551616"},
       "tool go: --number: found 18446744073709551616; wanted a whole number, "
       "at least 2"},
      {{"--at", "x", "go", "--number", "3", "--kind", "d"},
       "tool go: --kind: found d; wanted a, b or c"},
  };
  for (const auto& test : kCases) {
    const Outcome outcome = RunTool(test.words);
    EXPECT_EQ(outcome.status, 2) << test.error;
    EXPECT_EQ(outcome.err.substr(0, outcome.err.find('\n')), test.error);
    EXPECT_THAT(outcome.err, HasSubstr("\nSee `tool"));
    EXPECT_THAT(outcome.err, HasSubstr("--help`.\n"));
    EXPECT_FALSE(outcome.ran);
  }
}

TEST(CommandLineTest, ACommandMayRunWithoutAnOptionThatOthersRequire) {
  for (const bool required : {true, false}) {
    CommandLine line("tool", "Does things.");
    line.program()->AllowOptionsAfterCommand();
    std::string at;
    bool ran = false;
    line.program()->AddText("--at", &at, "where").Required();
    Command* look = line.AddCommand(line.program(), "look", "Looks.", "",
                                    [&ran]() -> absl::Status {
                                      ran = true;
                                      return absl::OkStatus();
                                    });
    if (!required) look->RunsWithout("--at");
    std::string words[] = {"tool", "look"};
    char* argv[] = {words[0].data(), words[1].data()};
    testing::internal::CaptureStderr();
    EXPECT_EQ(line.Run(2, argv), required ? 2 : 0);
    EXPECT_EQ(testing::internal::GetCapturedStderr().empty(), !required);
    EXPECT_EQ(ran, !required);
  }
}

TEST(CommandLineTest, HelpShowsEveryOption) {
  const Outcome outcome = RunTool({"go", "--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out,
            "Goes there (e.g. far).\nAnd back.\n"
            "\n"
            "Usage: tool go --at PLACE [--json] --number N [--kind a|b|c]\n"
            "        [--log-level debug|info|warning|error] "
            "[--log-format text|json]\n        [FILE...]\n"
            "\n"
            "Required:\n"
            "  --at PLACE                where\n"
            "  --number N                how many\n"
            "\n"
            "Options:\n"
            "  --json                    for machines\n"
            "  --kind a|b|c              which (default a)\n"
            "  --log-level debug|info|warning|error\n"
            "                            the least that is logged on standard "
            "error (or in\n"
            "                            the environment: BALLAST_LOG_LEVEL)\n"
            "  --log-format text|json    of that log (or in the environment:\n"
            "                            BALLAST_LOG_FORMAT)\n"
            "  FILE...                   what else\n"
            "  -h, --help                prints this\n"
            "\n"
            "Examples:\n"
            "  tool go\n");
}

TEST(CommandLineTest, HelpOfAProgramListsItsCommands) {
  const Outcome outcome = RunTool({"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out,
            "Does things. More of it.\n"
            "\n"
            "Usage: tool --at PLACE [--json] [--version] COMMAND ...\n"
            "\n"
            "Required:\n"
            "  --at PLACE    where\n"
            "\n"
            "Options:\n"
            "  --json        for machines\n"
            "  --version     prints version, commit and how it was built\n"
            "  -h, --help    prints this\n"
            "\n"
            "Commands:\n"
            "  go            Goes there (e.g. far).\n"
            "  group         Holds others.\n"
            "\n"
            "Examples:\n"
            "  tool --at here go\n");
}

}  // namespace
}  // namespace ballast
