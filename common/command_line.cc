#include "common/command_line.h"

#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/build_info.h"
#include "common/help_formatter.h"
#include "common/log.h"
#include "common/one_line.h"
#include "common/option_types.h"

namespace ballast {
namespace {

void SetExamples(CLI::App* app, const std::string& examples) {
  if (!examples.empty()) app->footer("Examples:\n" + examples);
}

// The innermost command on the line.
CLI::App* Given(CLI::App* app) {
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
  }
  return app;
}

std::string CommandsOf(CLI::App* app) {
  return absl::StrJoin(app->get_subcommands({}), ", ",
                       [](std::string* out, const CLI::App* command) {
                         absl::StrAppend(out, command->get_name());
                       });
}

// The required options of `app` and of what holds it that the line lacks.
std::string MissingOptions(const CLI::App* app) {
  std::vector<std::string> missing;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options({})) {
      if (option->get_required() && option->count() == 0) {
        missing.push_back(OptionUsage(option));
      }
    }
  }
  return absl::StrJoin(missing, ", ");
}

// What is wrong with the line. CLI11 asks for what is missing before it looks
// at what is unknown, but a misspelt word is both, and known by its spelling.
std::string Explain(CLI::App* app, CLI::App* given,
                    const CLI::ParseError& error) {
  const bool wants_command = !given->get_subcommands({}).empty();
  const bool missing =
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (missing ||
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const std::vector<std::string> unknown = app->remaining(true);
    if (!unknown.empty()) {
      if (absl::StartsWith(unknown[0], "-")) {
        return absl::StrCat("unknown option ", unknown[0]);
      }
      if (wants_command) {
        return absl::StrCat("unknown command ", unknown[0], "; wanted one of ",
                            CommandsOf(given));
      }
      return absl::StrCat("`", unknown[0], "` is not expected here");
    }
  }
  if (missing) {
    const std::string options = MissingOptions(given);
    if (!options.empty()) return absl::StrCat("missing ", options);
    if (wants_command) {
      return absl::StrCat("missing a command, one of ", CommandsOf(given));
    }
  }
  return error.what();
}

// Whether the log is to be JSON, of a command line that cannot be parsed.
bool WantsJson(int argc, char** argv) {
  bool json = CurrentLogFormat() == LogFormat::kJson;  // of the environment
  for (int i = 1; i < argc; ++i) {
    absl::string_view value = argv[i];
    if (value == "--log-format" && i + 1 < argc) {
      json = absl::string_view(argv[++i]) == "json";
    } else if (absl::ConsumePrefix(&value, "--log-format=")) {
      json = value == "json";
    }
  }
  return json;
}

}  // namespace

CommandLine::CommandLine(const std::string& name,
                         const std::string& description,
                         const std::string& examples)
    : app_(description, name) {
  app_.formatter(std::make_shared<HelpFormatter>());
  app_.set_version_flag(
      "--version",
      [this, name] {
        return absl::StrCat(VersionText(name),
                            build_options_.empty() ? "" : ", ", build_options_);
      },
      "prints version, commit and how it was built");
  SetExamples(&app_, examples);
}

void CommandLine::AddLogOptions(CLI::App* app) {
  OneOf(app->add_option("--log-level", log_level_,
                        "the least that is logged on standard error"),
        {"debug", "info", "warning", "error"})
      ->group(kCommonOptions)
      ->envname("BALLAST_LOG_LEVEL");
  OneOf(app->add_option("--log-format", log_format_, "of that log"),
        {"text", "json"})
      ->group(kCommonOptions)
      ->envname("BALLAST_LOG_FORMAT");
}

void CommandLine::SetAction(std::function<absl::Status()> action) {
  AddLogOptions(&app_);
  chosen_ = std::move(action);
}

CLI::App* CommandLine::AddCommand(CLI::App* parent, const std::string& name,
                                  const std::string& description,
                                  const std::string& examples,
                                  std::function<absl::Status()> action) {
  CLI::App* command = parent->add_subcommand(name, description);
  parent->require_subcommand(1);
  SetExamples(command, examples);
  AddLogOptions(command);
  command->callback([this, action = std::move(action)] { chosen_ = action; });
  return command;
}

CLI::App* CommandLine::AddGroup(const std::string& name,
                                const std::string& description,
                                const std::string& examples) {
  CLI::App* group = app_.add_subcommand(name, description);
  app_.require_subcommand(1);
  group->require_subcommand(1);
  SetExamples(group, examples);
  return group;
}

int CommandLine::Run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_.exit(error);
    CLI::App* given = Given(&app_);
    const std::string path = CommandPath(given);
    const std::string why = OneLine(Explain(&app_, given, error));
    if (WantsJson(argc, argv)) {
      SetLogFormat(LogFormat::kJson);
      LogError(path, ": ", why, "; see `", path, " --help`");
    } else {
      std::cerr << path << ": " << why << "\nSee `" << path << " --help`.\n";
    }
    return 2;
  }
  if (const auto level = ParseLogLevel(log_level_)) SetLogLevel(*level);
  if (const auto format = ParseLogFormat(log_format_)) SetLogFormat(*format);
  const absl::Status status = chosen_ ? chosen_() : absl::OkStatus();
  if (status.ok()) return 0;
  // A message can hold several faults, one a line.
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    if (CurrentLogFormat() == LogFormat::kJson) {
      LogError(app_.get_name(), ": ", line);
    } else {
      std::cerr << app_.get_name() << ": " << OneLine(line) << "\n";
    }
  }
  return 1;
}

}  // namespace ballast
