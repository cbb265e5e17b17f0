#ifndef BALLAST_COMMON_COMMAND_LINE_H_
#define BALLAST_COMMON_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// CLI11 parses the command line. Its headers cost seconds in each file that
// includes them, so only command_line.cc includes them.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ballast {
// Checks of an option's value. Each returns a message with the value found and
// the one wanted, or "" if the value is valid. Pure.

// Checks for a whole number from `least` to `most` in decimal digits; "-1" is
// not one.
std::string CheckWholeNumber(const std::string& given, uint64_t least,
                             uint64_t most);

// Checks for one of `choices`.
std::string CheckChoice(const std::string& given,
                        const std::vector<std::string>& choices);

// Flushes what a command has written. Errors: UNAVAILABLE if it was not taken,
// such as by a full disk.
absl::Status Flush(std::ostream& out);

// A handle of one option of a command, valid while its CommandLine lives. The
// setters return the option itself.
class Option {
 public:
  // Makes the option mandatory; --help lists it separately.
  Option Required() const;
  // Names its value in --help and messages: "FILE".
  Option TypeName(const std::string& name) const;
  // Takes the value from the environment variable `variable` if the command
  // line does not give it.
  Option FromEnvironment(const std::string& variable) const;
  // Makes --help say "(default X)": the variable's present value, or `text`.
  Option ShowDefault() const;
  Option ShowDefault(const std::string& text) const;
  // Lists it after a command's own options, with the options that every program
  // has.
  Option Common() const;
  // The allowed values; --help shows them in place of a type.
  Option OneOf(const std::vector<std::string>& choices) const;
  // Inclusive bounds of a number.
  Option Between(double least, double most) const;
  // Splits a value "a,b" into two.
  Option SplitAtCommas() const;
  // Requires `other` on the same command line.
  Option Needs(Option other) const;

  // Whether the command line or the environment gave it. Known after parsing.
  bool given() const;

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// A program or one of its commands, to which options are added. An option has a
// name ("--step"; "FILE" for a positional one), a variable that receives the
// value and must outlive the CommandLine's Run, and a text for --help.
class Command {
 public:
  using Action = std::function<absl::Status()>;

  Option AddText(const std::string& name, std::string* value,
                 const std::string& about);
  // Adds an option that may be given more than once.
  Option AddTexts(const std::string& name, std::vector<std::string>* values,
                  const std::string& about);
  Option AddFlag(const std::string& name, bool* value,
                 const std::string& about);
  Option AddReal(const std::string& name, double* value,
                 const std::string& about);
  // Adds a whole number from `least` to `most` in decimal digits; shown with
  // type N.
  Option AddWholeNumber(const std::string& name, uint32_t* value,
                        const std::string& about, uint64_t least = 0,
                        uint32_t most = std::numeric_limits<uint32_t>::max());
  Option AddWholeNumber(const std::string& name, uint64_t* value,
                        const std::string& about, uint64_t least = 0,
                        uint64_t most = std::numeric_limits<uint64_t>::max());
  // `set` receives the value.
  Option AddWholeNumber(const std::string& name,
                        std::function<void(uint64_t)> set,
                        const std::string& about, uint64_t least,
                        uint64_t most);

  // Allows the program's own options after the command, too.
  void AllowOptionsAfterCommand();

  // Makes the program's required option `name` optional for this command.
  void RunsWithout(const std::string& name);

 private:
  friend class CommandLine;
  explicit Command(CLI::App* app) : app_(app) {}

  CLI::App* const app_;
};

// A program with commands. Thread-compatible.
//
//   CommandLine line("ballastctl", "Queries loader servers.",
//                    "  ballastctl --server A status");
//   Command* status = line.AddCommand(
//       line.program(), "status", "Shows a server's state.",
//       "  ballastctl --server A status", [] { return PrintStatus(); });
//   status->AddFlag("--json", &json, "one JSON object");
//   return line.Run(argc, argv);
//
// A program without commands passes its action to SetAction. Every program has
// --version (common/build_info.h), and every command --log-level and
// --log-format (common/log.h).
class CommandLine {
 public:
  // `description`: one or more sentences. A list of programs or commands shows
  // the first. `examples` ends --help.
  CommandLine(const std::string& name, const std::string& description,
              const std::string& examples = "");
  ~CommandLine();

  Command* program() { return commands_.front().get(); }

  // Adds text to the output of --version.
  void SetBuildOptions(std::string options);

  // Makes this a program without commands: `action` runs once the whole line
  // has been parsed.
  void SetAction(Command::Action action);

  // Adds a command. `description`, `examples` and `action` as above. The
  // CommandLine owns what is returned.
  Command* AddCommand(Command* parent, const std::string& name,
                      const std::string& description,
                      const std::string& examples, Command::Action action);

  // Adds a command that only holds others, at the top level.
  Command* AddGroup(const std::string& name, const std::string& description,
                    const std::string& examples);

  // Parses the command line and runs the action. Returns the exit status: 0, 1
  // if the action failed, 2 if the command line is wrong. The error's message
  // goes to stderr, each line after the program's name. With --log-format json
  // an action's error is logged, one event per line. `--config F` in a command
  // that the message names becomes the file that this command was given.
  int Run(int argc, char** argv);

 private:
  Command* Own(CLI::App* app);
  void AddLogOptions(Command* command);
  // `message` with the given command's --config in place of `--config F`.
  std::string ToPaste(absl::string_view message) const;

  const std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Command>> commands_;  // the program first
  std::string build_options_;
  std::string log_level_;   // empty: not given
  std::string log_format_;  // likewise
  Command::Action chosen_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_COMMAND_LINE_H_
