#include "common/command_line.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/build_info.h"
#include "common/log.h"
#include "common/table.h"

namespace ballast {
namespace {

// The contents of one command's --help.
struct HelpPage {
  struct Entry {
    std::string usage;  // as typed: "--step N", "FILE..."
    std::string about;
    bool required = false;
  };

  std::string path;  // the command as typed
  std::string description;
  std::vector<Entry> options;   // in the order of the usage line
  std::vector<Entry> commands;  // its subcommands; usage is the name
  std::string footer;
};

// Columns of --help: the terminal's, of at least 60 and at most 120; elsewhere
// 80.
size_t HelpWidth() {
  winsize size = {};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return 80;
  }
  return std::clamp<size_t>(size.ws_col, 60, 120);
}

// Joins `pieces` with spaces into lines of HelpWidth: the first after `head`,
// the others indented by `indent`.
std::string Fill(std::string head, const std::vector<std::string>& pieces,
                 size_t indent) {
  const size_t width = HelpWidth();
  std::string text;
  std::string line = std::move(head);
  bool empty = true;  // except for its head or indent
  for (const std::string& piece : pieces) {
    if (!empty && line.size() + 1 + piece.size() > width) {
      absl::StrAppend(&text, line, "\n");
      line = std::string(indent, ' ');
      empty = true;
    }
    absl::StrAppend(&line, empty ? "" : " ", piece);
    empty = false;
  }
  return absl::StrCat(text, line, "\n");
}

std::vector<std::string> Words(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

// Formats two columns: `name`, then `about` from column `column` on.
std::string Entry(absl::string_view name, size_t column,
                  absl::string_view about) {
  std::string head = absl::StrCat("  ", name);
  std::string text;
  if (head.size() + 2 > column) {
    text = absl::StrCat(head, "\n");
    head.clear();
  }
  head.resize(column, ' ');
  return absl::StrCat(text, Fill(std::move(head), Words(about), column));
}

std::string FirstSentence(absl::string_view text) {
  // A sentence ends only before a capital, so "e.g. this" does not end one.
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    if (text[i] == '.' && absl::ascii_isspace(text[i + 1]) &&
        absl::ascii_isupper(text[i + 2])) {
      return std::string(text.substr(0, i + 1));
    }
  }
  return std::string(text);
}

std::string Usage(const HelpPage& page) {
  std::vector<std::string> pieces;
  for (const HelpPage::Entry& option : page.options) {
    pieces.push_back(option.required ? option.usage
                                     : absl::StrCat("[", option.usage, "]"));
  }
  if (!page.commands.empty()) pieces.push_back("COMMAND ...");
  const std::string head = absl::StrCat("Usage: ", page.path, " ");
  return Fill(head, pieces, std::min<size_t>(head.size(), 8));
}

// Formats the page: description, a usage line with every option, required
// options separate from the others, subcommands with the first sentence of
// their descriptions, and the footer. At most HelpWidth columns, if the given
// texts allow it. Pure.
std::string HelpText(const HelpPage& page) {
  std::string text = absl::StrCat(page.description, "\n\n", Usage(page));
  size_t column = 0;
  for (const HelpPage::Entry& option : page.options) {
    column = std::max(column, option.usage.size() + 4);
  }
  column = std::clamp<size_t>(column, 16, 28);
  std::string required;
  std::string optional;
  for (const HelpPage::Entry& option : page.options) {
    absl::StrAppend(option.required ? &required : &optional,
                    Entry(option.usage, column, option.about));
  }
  absl::StrAppend(&optional, Entry("-h, --help", column, "prints this"));
  if (!required.empty()) absl::StrAppend(&text, "\nRequired:\n", required);
  absl::StrAppend(&text, "\nOptions:\n", optional);

  if (!page.commands.empty()) absl::StrAppend(&text, "\nCommands:\n");
  for (const HelpPage::Entry& command : page.commands) {
    absl::StrAppend(&text,
                    Entry(command.usage, column, FirstSentence(command.about)));
  }
  if (!page.footer.empty()) absl::StrAppend(&text, "\n", page.footer, "\n");
  return text;
}

// "a", "a or b", "a, b or c".
std::string Alternatives(const std::vector<std::string>& choices) {
  if (choices.size() < 2) return absl::StrJoin(choices, "");
  return absl::StrCat(absl::StrJoin(choices.begin(), choices.end() - 1, ", "),
                      " or ", choices.back());
}

}  // namespace

absl::Status Flush(std::ostream& out) {
  out.flush();
  if (out) return absl::OkStatus();
  return absl::UnavailableError("cannot write to standard output");
}

std::string CheckWholeNumber(const std::string& given, uint64_t least,
                             uint64_t most) {
  uint64_t number = 0;
  const bool digits =
      std::all_of(given.begin(), given.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(given, &number) && number >= least &&
      number <= most) {
    return "";
  }
  std::string wanted = absl::StrCat("at least ", least);
  if (most < std::numeric_limits<uint64_t>::max()) {
    wanted = absl::StrCat(least, " to ", most);
  }
  return absl::StrCat("found ", given, "; wanted a whole number, ", wanted);
}

std::string CheckChoice(const std::string& given,
                        const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), given) != choices.end()) {
    return "";
  }
  return absl::StrCat("found ", given, "; wanted ", Alternatives(choices));
}

namespace {

// CLI11's group of the options that every program has.
constexpr char kCommonOptions[] = "Common";

// The command as typed: "ballast-server inspect image".
std::string CommandPath(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  return parent == nullptr
             ? app->get_name()
             : absl::StrCat(CommandPath(parent), " ", app->get_name());
}

// `option` with its value's type, as typed: "--step N", "FILE...".
std::string OptionUsage(const CLI::Option* option) {
  const bool many =
      option->get_expected_max() >= CLI::detail::expected_max_vector_size;
  const char* const dots = many ? "..." : "";
  if (option->get_positional()) {
    return absl::StrCat(option->get_name(true, false), dots);
  }
  const std::string name = option->get_name(false, true);
  // A flag takes no value and has no type.
  if (option->get_type_name().empty()) return name;
  return absl::StrCat(name, " ", option->get_type_name(), dots);
}

// The options that `app` accepts, in order: its parents' options, its own, the
// options that every program has, positional ones.
std::vector<const CLI::Option*> GetOptions(const CLI::App* app) {
  std::vector<const CLI::App*> chain;
  for (; app != nullptr; app = app->get_parent()) chain.push_back(app);
  std::vector<const CLI::Option*> options;
  std::vector<const CLI::Option*> common;
  std::vector<const CLI::Option*> positional;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    for (const CLI::Option* option : (*at)->get_options({})) {
      if (option == (*at)->get_help_ptr()) continue;
      if (option == (*at)->get_version_ptr()) {
        // An option of the program, not of a command.
        if (*at == chain.front()) common.push_back(option);
      } else if (option->get_group() == kCommonOptions) {
        common.push_back(option);
      } else {
        (option->get_positional() ? positional : options).push_back(option);
      }
    }
  }
  options.insert(options.end(), common.begin(), common.end());
  options.insert(options.end(), positional.begin(), positional.end());
  return options;
}

std::string About(const CLI::Option* option) {
  std::string about = option->get_description();
  if (!option->get_default_str().empty()) {
    absl::StrAppend(&about, " (default ", option->get_default_str(), ")");
  }
  if (!option->get_envname().empty()) {
    absl::StrAppend(&about, " (or in the environment: ", option->get_envname(),
                    ")");
  }
  return about;
}

// Formats --help by HelpText instead of as CLI11 does.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    HelpPage page;
    page.path = CommandPath(app);
    page.description = app->get_description();
    page.footer = app->get_footer();
    for (const CLI::Option* option : GetOptions(app)) {
      page.options.push_back(
          {OptionUsage(option), About(option), option->get_required()});
    }
    for (const CLI::App* command : app->get_subcommands(
             [](const CLI::App* sub) { return !sub->get_name().empty(); })) {
      page.commands.push_back(
          {command->get_name(), command->get_description()});
    }
    return HelpText(page);
  }
};

void SetExamples(CLI::App* app, const std::string& examples) {
  if (!examples.empty()) app->footer("Examples:\n" + examples);
}

CLI::Option* WholeNumber(CLI::Option* option, uint64_t least, uint64_t most) {
  return option->type_name("N")->check([least, most](const std::string& given) {
    return CheckWholeNumber(given, least, most);
  });
}

// The innermost command on the command line.
CLI::App* Given(CLI::App* app) {
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().front();
  }
  return app;
}

std::string GetCommands(CLI::App* app) {
  return absl::StrJoin(app->get_subcommands({}), ", ",
                       [](std::string* out, const CLI::App* command) {
                         absl::StrAppend(out, command->get_name());
                       });
}

// The required options of `app` and its parents that are missing.
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

// Explains the fault in the command line. CLI11 reports missing options before
// unknown ones, but a misspelt option is both, and its spelling explains more.
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
                            GetCommands(given));
      }
      return absl::StrCat("`", unknown[0], "` is not expected here");
    }
  }
  if (missing) {
    const std::string options = MissingOptions(given);
    if (!options.empty()) return absl::StrCat("missing ", options);
    if (wants_command) {
      return absl::StrCat("missing a command, one of ", GetCommands(given));
    }
  }
  return error.what();
}

// Whether a command line that cannot be parsed requests a JSON log.
bool WantsJson(int argc, char** argv) {
  bool json = CurrentLogFormat() == LogFormat::kJson;  // from the environment
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

Option Option::Required() const { return Option(option_->required()); }

Option Option::TypeName(const std::string& name) const {
  return Option(option_->type_name(name));
}

Option Option::FromEnvironment(const std::string& variable) const {
  return Option(option_->envname(variable));
}

Option Option::ShowDefault() const {
  return Option(option_->capture_default_str());
}

Option Option::ShowDefault(const std::string& text) const {
  return Option(option_->default_str(text));
}

Option Option::Common() const { return Option(option_->group(kCommonOptions)); }

Option Option::OneOf(const std::vector<std::string>& choices) const {
  option_->type_name(absl::StrJoin(choices, "|"));
  return Option(option_->check([choices](const std::string& given) {
    return CheckChoice(given, choices);
  }));
}

Option Option::Between(double least, double most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::SplitAtCommas() const { return Option(option_->delimiter(',')); }

Option Option::Needs(Option other) const {
  return Option(option_->needs(other.option_));
}

bool Option::given() const { return option_->count() > 0; }

Option Command::AddText(const std::string& name, std::string* value,
                        const std::string& about) {
  return Option(app_->add_option(name, *value, about));
}

Option Command::AddTexts(const std::string& name,
                         std::vector<std::string>* values,
                         const std::string& about) {
  return Option(app_->add_option(name, *values, about));
}

Option Command::AddFlag(const std::string& name, bool* value,
                        const std::string& about) {
  return Option(app_->add_flag(name, *value, about));
}

Option Command::AddReal(const std::string& name, double* value,
                        const std::string& about) {
  return Option(app_->add_option(name, *value, about));
}

Option Command::AddWholeNumber(const std::string& name, uint32_t* value,
                               const std::string& about, uint64_t least,
                               uint32_t most) {
  return Option(
      WholeNumber(app_->add_option(name, *value, about), least, most));
}

Option Command::AddWholeNumber(const std::string& name, uint64_t* value,
                               const std::string& about, uint64_t least,
                               uint64_t most) {
  return Option(
      WholeNumber(app_->add_option(name, *value, about), least, most));
}

Option Command::AddWholeNumber(const std::string& name,
                               std::function<void(uint64_t)> set,
                               const std::string& about, uint64_t least,
                               uint64_t most) {
  return Option(WholeNumber(
      app_->add_option_function<uint64_t>(name, std::move(set), about), least,
      most));
}

void Command::AllowOptionsAfterCommand() { app_->fallthrough(); }

void Command::RunsWithout(const std::string& name) {
  CLI::Option* const option = app_->get_parent()->get_option(name);
  app_->preparse_callback([option](size_t) { option->required(false); });
}

CommandLine::CommandLine(const std::string& name,
                         const std::string& description,
                         const std::string& examples)
    : app_(std::make_unique<CLI::App>(description, name)) {
  Own(app_.get());
  app_->formatter(std::make_shared<HelpFormatter>());
  app_->set_version_flag(
      "--version",
      [this, name] {
        return absl::StrCat(VersionText(name),
                            build_options_.empty() ? "" : ", ", build_options_);
      },
      "prints version, commit and how it was built");
  SetExamples(app_.get(), examples);
}

CommandLine::~CommandLine() = default;

Command* CommandLine::Own(CLI::App* app) {
  commands_.emplace_back(new Command(app));
  return commands_.back().get();
}

void CommandLine::SetBuildOptions(std::string options) {
  build_options_ = std::move(options);
}

void CommandLine::AddLogOptions(Command* command) {
  command
      ->AddText("--log-level", &log_level_,
                "the least that is logged on standard error")
      .OneOf({"debug", "info", "warning", "error"})
      .Common()
      .FromEnvironment("BALLAST_LOG_LEVEL");
  command->AddText("--log-format", &log_format_, "of that log")
      .OneOf({"text", "json"})
      .Common()
      .FromEnvironment("BALLAST_LOG_FORMAT");
}

void CommandLine::SetAction(Command::Action action) {
  AddLogOptions(program());
  chosen_ = std::move(action);
}

Command* CommandLine::AddCommand(Command* parent, const std::string& name,
                                 const std::string& description,
                                 const std::string& examples,
                                 Command::Action action) {
  CLI::App* app = parent->app_->add_subcommand(name, description);
  parent->app_->require_subcommand(1);
  SetExamples(app, examples);
  app->callback([this, action = std::move(action)] { chosen_ = action; });
  Command* command = Own(app);
  AddLogOptions(command);
  return command;
}

Command* CommandLine::AddGroup(const std::string& name,
                               const std::string& description,
                               const std::string& examples) {
  CLI::App* group = app_->add_subcommand(name, description);
  app_->require_subcommand(1);
  group->require_subcommand(1);
  SetExamples(group, examples);
  return Own(group);
}

std::string CommandLine::ToPaste(absl::string_view message) const {
  const CLI::Option* config =
      Given(app_.get())->get_option_no_throw("--config");
  if (config == nullptr || config->count() == 0) return std::string(message);
  std::string file = config->results().back();
  if (!std::all_of(file.begin(), file.end(), [](char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("/._-+@%:,=", c);
      })) {
    file = absl::StrCat("'", absl::StrReplaceAll(file, {{"'", "'\\''"}}), "'");
  }
  return absl::StrReplaceAll(
      message, {{"--config F`", absl::StrCat("--config ", file, "`")},
                {"--config F ", absl::StrCat("--config ", file, " ")}});
}

int CommandLine::Run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);
    CLI::App* given = Given(app_.get());
    const std::string path = CommandPath(given);
    const std::string why = OneLine(Explain(app_.get(), given, error));
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
  // A message can hold several faults, one per line.
  const std::string message = ToPaste(status.message());
  for (const absl::string_view line : absl::StrSplit(message, '\n')) {
    if (CurrentLogFormat() == LogFormat::kJson) {
      LogError(app_->get_name(), ": ", line);
    } else {
      std::cerr << app_->get_name() << ": " << OneLine(line) << "\n";
    }
  }
  return 1;
}

}  // namespace ballast
