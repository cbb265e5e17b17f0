#ifndef BALLAST_COMMON_COMMAND_LINE_H_
#define BALLAST_COMMON_COMMAND_LINE_H_

#include <functional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace ballast {

// A program with subcommands, over CLI11. Thread-compatible.
//
//   CommandLine line("ballastctl", "Queries loader servers.",
//                    "  ballastctl --server A status");
//   CLI::App* status = line.AddCommand(line.app(), "status", "What it does.",
//                                      "  ballastctl --server A status",
//                                      [] { return PrintStatus(); });
//   return line.Run(argc, argv);
//
// A program without commands gives its action to SetAction. Types of options:
// common/option_types.h; how --help reads: common/help_formatter.h. Every
// program has --version (common/build_info.h), and every command --log-level
// and --log-format (common/log.h).
class CommandLine {
 public:
  // `description` is one or more sentences; where the program is listed among
  // others, the first stands for it. `examples` stands at the end of --help.
  CommandLine(const std::string& name, const std::string& description,
              const std::string& examples = "");

  CLI::App* app() { return &app_; }

  // What --version says of the build beside what all programs say.
  void SetBuildOptions(std::string options) {
    build_options_ = std::move(options);
  }

  // Makes a program without commands of this: `action` runs after the whole
  // line has been parsed.
  void SetAction(std::function<absl::Status()> action);

  // Adds a command. `description`, `examples` and `action` as above. Options
  // are added to the App that is returned; the CommandLine owns it.
  CLI::App* AddCommand(CLI::App* parent, const std::string& name,
                       const std::string& description,
                       const std::string& examples,
                       std::function<absl::Status()> action);

  // Adds a command that only holds others, at the top level.
  CLI::App* AddGroup(const std::string& name, const std::string& description,
                     const std::string& examples);

  // Parses and runs. Returns the exit status: 0, 1 when the action failed, 2
  // when the line is wrong; the message then goes to stderr, each line after
  // the program's name. With --log-format json an action's error is logged, a
  // line of it an event.
  int Run(int argc, char** argv);

 private:
  void AddLogOptions(CLI::App* app);

  CLI::App app_;
  std::string build_options_;
  std::string log_level_;   // empty: not given
  std::string log_format_;  // likewise
  std::function<absl::Status()> chosen_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_COMMAND_LINE_H_
