#ifndef BALLAST_COMMON_COMMAND_LINE_H_
#define BALLAST_COMMON_COMMAND_LINE_H_

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace ballast {

// A program with subcommands, over CLI11. Thread-compatible.
//
//   CommandLine line("ballastctl", "Queries loader servers.");
//   CLI::App* status = line.AddCommand(line.app(), "status", "What it does.",
//                                      "ballastctl --server A status",
//                                      [] { return PrintStatus(); });
//   return line.Run(argc, argv);
class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description);

  CLI::App* app() { return &app_; }

  // Adds a subcommand. `examples` stands at the end of its --help. `action`
  // runs after the whole line has been parsed. Options are added to the App
  // that is returned; the CommandLine owns it.
  CLI::App* AddCommand(CLI::App* parent, const std::string& name,
                       const std::string& description,
                       const std::string& examples,
                       std::function<absl::Status()> action);

  // Adds a subcommand that only holds others, at the top level.
  CLI::App* AddGroup(const std::string& name, const std::string& description);

  // Parses and runs. Returns the exit status: 0, 1 when the action failed (its
  // message goes to stderr), 2 when the line is wrong.
  int Run(int argc, char** argv);

 private:
  CLI::App app_;
  std::function<absl::Status()> chosen_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_COMMAND_LINE_H_
