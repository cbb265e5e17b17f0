#ifndef BALLAST_SERVER_CONFIG_PATH_PATTERN_H_
#define BALLAST_SERVER_CONFIG_PATH_PATTERN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// `path` under `directory` unless it is absolute; `directory` itself for an
// empty path or ".". An empty directory is the current one.
std::string ResolvePath(absl::string_view directory, absl::string_view path);

// The names that `pattern` stands for, its braces expanded as a shell does:
// {a,b} and {000..007} with its leading zeros, nested; globs are left as they
// are. Touches no file. Errors: INVALID_ARGUMENT (unbalanced or empty braces, a
// range of other than numbers, more than a million names).
absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern);

// The files that `pattern` names. Braces are expanded first, then globs
// (* ? [...]; a backslash takes their meaning away) are matched against the
// file system; relative patterns start at `directory`, in which no character
// is special. A glob leaves directories and hidden names out. Files come in
// the order of the braces, and sorted by byte within a glob; none comes twice.
// Blocks on the file system. Errors: INVALID_ARGUMENT (as ExpandBraces; a name
// that is a directory), NOT_FOUND (a name or glob that matches nothing, named),
// PERMISSION_DENIED (a directory that cannot be listed).
absl::StatusOr<std::vector<std::string>> ExpandPath(absl::string_view directory,
                                                    absl::string_view pattern);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_PATH_PATTERN_H_
