#include "common/help_formatter.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

constexpr size_t kWidth = 80;

// `pieces` with spaces between them, in lines of kWidth, the first after
// `head`, the others indented by `indent`.
std::string Fill(std::string head, const std::vector<std::string>& pieces,
                 size_t indent) {
  std::string text;
  std::string line = std::move(head);
  bool empty = true;  // but for its head or indent
  for (const std::string& piece : pieces) {
    if (!empty && line.size() + 1 + piece.size() > kWidth) {
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

// Two columns: `name`, and what is said of it from column `column` on.
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
  // The next one begins with a capital: "e.g. this" goes on.
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    if (text[i] == '.' && absl::ascii_isspace(text[i + 1]) &&
        absl::ascii_isupper(text[i + 2])) {
      return std::string(text.substr(0, i + 1));
    }
  }
  return std::string(text);
}

// The options that can stand on the line of `app`: those of the programs that
// hold it, and its own; then those that every program has, and positional ones.
std::vector<const CLI::Option*> OptionsOf(const CLI::App* app) {
  std::vector<const CLI::App*> chain;
  for (; app != nullptr; app = app->get_parent()) chain.push_back(app);
  std::vector<const CLI::Option*> options;
  std::vector<const CLI::Option*> common;
  std::vector<const CLI::Option*> positional;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    for (const CLI::Option* option : (*at)->get_options({})) {
      if (option == (*at)->get_help_ptr()) continue;
      if (option == (*at)->get_version_ptr()) {
        // Of a program, and of no command's line.
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

std::string Usage(const CLI::App* app, const std::vector<const CLI::App*>& subs,
                  const std::vector<const CLI::Option*>& options) {
  const std::string head = absl::StrCat("Usage: ", CommandPath(app), " ");
  std::vector<std::string> pieces;
  for (const CLI::Option* option : options) {
    pieces.push_back(option->get_required()
                         ? OptionUsage(option)
                         : absl::StrCat("[", OptionUsage(option), "]"));
  }
  if (!subs.empty()) pieces.push_back("COMMAND ...");
  return Fill(head, pieces, std::min<size_t>(head.size(), 8));
}

}  // namespace

std::string CommandPath(const CLI::App* app) {
  const CLI::App* parent = app->get_parent();
  return parent == nullptr
             ? app->get_name()
             : absl::StrCat(CommandPath(parent), " ", app->get_name());
}

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

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  const std::vector<const CLI::Option*> options = OptionsOf(app);
  const std::vector<const CLI::App*> subs = app->get_subcommands(
      [](const CLI::App* sub) { return !sub->get_name().empty(); });
  std::string text =
      absl::StrCat(app->get_description(), "\n\n", Usage(app, subs, options));

  size_t column = 0;
  std::string required;
  std::string optional;
  for (const CLI::Option* option : options) {
    column = std::max(column, OptionUsage(option).size() + 4);
  }
  column = std::clamp<size_t>(column, 16, 28);
  for (const CLI::Option* option : options) {
    absl::StrAppend(option->get_required() ? &required : &optional,
                    Entry(OptionUsage(option), column, About(option)));
  }
  absl::StrAppend(&optional, Entry("-h, --help", column, "prints this"));
  if (!required.empty()) absl::StrAppend(&text, "\nRequired:\n", required);
  absl::StrAppend(&text, "\nOptions:\n", optional);

  if (!subs.empty()) absl::StrAppend(&text, "\nCommands:\n");
  for (const CLI::App* sub : subs) {
    absl::StrAppend(&text, Entry(sub->get_name(), column,
                                 FirstSentence(sub->get_description())));
  }
  if (!app->get_footer().empty()) {
    absl::StrAppend(&text, "\n", app->get_footer(), "\n");
  }
  return text;
}

}  // namespace ballast
