#ifndef BALLAST_COMMON_HELP_FORMATTER_H_
#define BALLAST_COMMON_HELP_FORMATTER_H_

#include <string>

#include <CLI/CLI.hpp>

namespace ballast {

// The group (CLI::Option::group) of options that every program has: they are
// listed after a command's own.
inline constexpr char kCommonOptions[] = "Common";

// How --help reads: description, a usage line with every option, the options
// that are required apart from the others, commands with the first sentence of
// what they do, and the footer. At most 80 columns as long as the texts given
// keep to them. A command also shows the options of the program that holds it,
// since they belong on its line. Thread-compatible.
class HelpFormatter : public CLI::FormatterBase {
 public:
  // `name` and `mode` are CLI11's; what is shown is the same for all.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// "ballast-server inspect image": `app` as one calls it.
std::string CommandPath(const CLI::App* app);

// "--step N", "FILE...": `option` with its value's type, as one writes it.
std::string OptionUsage(const CLI::Option* option);

}  // namespace ballast

#endif  // BALLAST_COMMON_HELP_FORMATTER_H_
