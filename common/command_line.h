#ifndef BALLAST_COMMON_COMMAND_LINE_H_
#define BALLAST_COMMON_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

// CLI11 parses the line. Its headers cost seconds in each file that includes
// them, so only command_line.cc does.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ballast {

// One option of a command: a handle, valid while its CommandLine lives. The
// setters return the option itself.
class Option {
 public:
  // The line must have it; --help lists it apart.
  Option Required() const;
  // What stands for its value in --help and messages: "FILE".
  Option TypeName(const std::string& name) const;
  // `variable` of the environment gives the value where the line does not.
  Option FromEnvironment(const std::string& variable) const;
  // --help says "(default X)": what the variable holds now, or `text`.
  Option ShowDefault() const;
  Option ShowDefault(const std::string& text) const;
  // Listed after a command's own options, with those of every program.
  Option Common() const;
  // Values, one of which is wanted; --help shows them in place of a type.
  Option OneOf(const std::vector<std::string>& choices) const;
  // Bounds of a number, both allowed.
  Option Between(double least, double most) const;
  // A value "a,b" counts as two.
  Option SplitAtCommas() const;
  // Must, or must not, stand on one line with `other`.
  Option Needs(Option other) const;
  Option Excludes(Option other) const;

  // Whether the line or the environment gave it. Known once the line is parsed.
  bool given() const;

 private:
  friend class Command;
  explicit Option(CLI::Option* option) : option_(option) {}

  CLI::Option* option_;
};

// A program or one of its commands, to which options are added: by name
// ("--step"; "FILE" for one without a name), the variable that takes the value,
// which must outlive the CommandLine's Run, and what --help says of it.
class Command {
 public:
  using Action = std::function<absl::Status()>;

  Option AddText(const std::string& name, std::string* value,
                 const std::string& about);
  // May be given more than once.
  Option AddTexts(const std::string& name, std::vector<std::string>* values,
                  const std::string& about);
  Option AddFlag(const std::string& name, bool* value,
                 const std::string& about);
  Option AddReal(const std::string& name, double* value,
                 const std::string& about);
  // A whole number of `least` to `most` in decimal digits; shown with type N.
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

  // The program's own options may also follow the command.
  void AllowOptionsAfterCommand();

 private:
  friend class CommandLine;
  explicit Command(CLI::App* app) : app_(app) {}

  CLI::App* const app_;
};

// A program with commands. Thread-compatible.
//
//   CommandLine line("ballastctl", "Queries loader servers.",
//                    "  ballastctl --server A status");
//   Command* status = line.AddCommand(line.program(), "status", "What it
//   does.",
//                                     "  ballastctl --server A status",
//                                     [] { return PrintStatus(); });
//   status->AddFlag("--json", &json, "one JSON object");
//   return line.Run(argc, argv);
//
// A program without commands gives its action to SetAction. common/help_text.h
// defines how --help reads. Every program has --version (common/build_info.h),
// and every command --log-level and --log-format (common/log.h).
class CommandLine {
 public:
  // `description`: one or more sentences. A list of programs or commands shows
  // the first. `examples` ends --help.
  CommandLine(const std::string& name, const std::string& description,
              const std::string& examples = "");
  ~CommandLine();

  Command* program() { return commands_.front().get(); }

  // Text that --version adds to what every program says of its build.
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

  // Parses and runs. Returns the exit status: 0, 1 when the action failed, 2
  // when the line is wrong; the message then goes to stderr, each line after
  // the program's name. With --log-format json an action's error is logged, a
  // line of it an event.
  int Run(int argc, char** argv);

 private:
  Command* Own(CLI::App* app);
  void AddLogOptions(Command* command);

  const std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Command>> commands_;  // the program first
  std::string build_options_;
  std::string log_level_;   // empty: not given
  std::string log_format_;  // likewise
  Command::Action chosen_;
};

}  // namespace ballast

#endif  // BALLAST_COMMON_COMMAND_LINE_H_
