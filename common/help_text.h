#ifndef BALLAST_COMMON_HELP_TEXT_H_
#define BALLAST_COMMON_HELP_TEXT_H_

#include <string>
#include <vector>

namespace ballast {

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

// Formats the page: description, a usage line with every option, required
// options separate from the others, subcommands with the first sentence of
// their descriptions, and the footer. At most 80 columns, if the given texts
// allow it. Pure.
std::string HelpText(const HelpPage& page);

}  // namespace ballast

#endif  // BALLAST_COMMON_HELP_TEXT_H_
