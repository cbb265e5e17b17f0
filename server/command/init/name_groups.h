#ifndef BALLAST_SERVER_COMMAND_INIT_NAME_GROUPS_H_
#define BALLAST_SERVER_COMMAND_INIT_NAME_GROUPS_H_

#include <string>
#include <vector>

namespace ballast {

// Files of one folder that differ in their numbers alone: shards of a source.
struct NameGroup {
  // Names exactly `names` among the names that were grouped, as a pattern of
  // sources[].path.
  std::string pattern;
  std::vector<std::string> names;  // sorted
};

// Groups the names of files of one folder. docs-000.tar and docs-001.tar make
// `docs-[0-9]*.tar`; a single file stands for itself, with the characters of
// patterns escaped. In a fixed order. Pure.
std::vector<NameGroup> GroupNames(std::vector<std::string> names);

// `name` with the characters that are special in a glob escaped. Braces and
// commas have no escape: false is returned, and `name` stays.
bool EscapePattern(std::string* name);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_NAME_GROUPS_H_
