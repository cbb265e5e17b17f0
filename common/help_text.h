#ifndef BALLAST_COMMON_HELP_TEXT_H_
#define BALLAST_COMMON_HELP_TEXT_H_

#include <string>
#include <vector>

namespace ballast {

// What --help of one command shows.
struct HelpPage {
  struct Entry {
    std::string usage;  // as one writes it: "--step N", "FILE..."
    std::string about;
    bool required = false;
  };

  std::string path;  // the command as one calls it
  std::string description;
  std::vector<Entry> options;   // in the order of the usage line
  std::vector<Entry> commands;  // those below it; usage is the name
  std::string footer;
};

// The page as text: description, a usage line with every option, the options
// that are required apart from the others, the commands with the first sentence
// of what they do, and the footer. At most 80 columns where the texts given
// keep to them. Pure.
std::string HelpText(const HelpPage& page);

}  // namespace ballast

#endif  // BALLAST_COMMON_HELP_TEXT_H_
