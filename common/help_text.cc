#include "common/help_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

constexpr size_t kWidth = 80;

// Joins `pieces` with spaces into lines of kWidth: the first after `head`, the
// others indented by `indent`.
std::string Fill(std::string head, const std::vector<std::string>& pieces,
                 size_t indent) {
  std::string text;
  std::string line = std::move(head);
  bool empty = true;  // except for its head or indent
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

}  // namespace

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

}  // namespace ballast
