#include "common/command_line.h"

#include <iostream>
#include <utility>

namespace ballast {

CommandLine::CommandLine(const std::string& name,
                         const std::string& description)
    : app_(description, name) {
  app_.require_subcommand(1);
  app_.get_formatter()->column_width(34);
}

CLI::App* CommandLine::AddCommand(CLI::App* parent, const std::string& name,
                                  const std::string& description,
                                  const std::string& examples,
                                  std::function<absl::Status()> action) {
  CLI::App* command = parent->add_subcommand(name, description);
  command->footer("Examples:\n" + examples);
  command->callback(
      [this, action = std::move(action)] { chosen_ = action; });
  return command;
}

CLI::App* CommandLine::AddGroup(const std::string& name,
                                const std::string& description) {
  CLI::App* group = app_.add_subcommand(name, description);
  group->require_subcommand(1);
  return group;
}

int CommandLine::Run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_.exit(error) == 0 ? 0 : 2;
  }
  const absl::Status status = chosen_ ? chosen_() : absl::OkStatus();
  if (status.ok()) return 0;
  std::cerr << app_.get_name() << ": " << status.message() << "\n";
  return 1;
}

}  // namespace ballast
