#include "server/command/init/name_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ballast {
namespace {

constexpr char kNumber[] = "[0-9]*";

// `name` with every number replaced by a glob. The extension stays.
std::string WithoutNumbers(absl::string_view name) {
  const size_t dot = name.rfind('.');
  std::string pattern;
  for (size_t i = 0; i < name.size(); ++i) {
    if (absl::ascii_isdigit(name[i]) && i < dot) {
      while (i + 1 < name.size() && absl::ascii_isdigit(name[i + 1])) ++i;
      pattern += kNumber;
    } else {
      std::string one(1, name[i]);
      EscapePattern(&one);
      pattern += one;
    }
  }
  return pattern;
}

}  // namespace

bool EscapePattern(std::string* name) {
  std::string escaped;
  for (const char c : *name) {
    if (c == '{' || c == '}' || c == ',') return false;
    if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  *name = std::move(escaped);
  return true;
}

std::vector<NameGroup> GroupNames(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::map<std::string, std::vector<std::string>> by_pattern;
  for (const std::string& name : names) {
    by_pattern[WithoutNumbers(name)].push_back(name);
  }
  std::vector<NameGroup> groups;
  for (auto& [pattern, members] : by_pattern) {
    NameGroup group{pattern, std::move(members)};
    const auto matched = [&](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
    };
    const bool exact =
        static_cast<size_t>(std::count_if(names.begin(), names.end(),
                                          matched)) == group.names.size();
    if (group.names.size() == 1 || !exact) {
      std::vector<std::string> escaped = group.names;
      for (std::string& name : escaped) EscapePattern(&name);
      group.pattern = escaped.size() == 1
                          ? escaped.front()
                          : absl::StrCat("{", absl::StrJoin(escaped, ","), "}");
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace ballast
