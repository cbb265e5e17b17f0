#ifndef BALLAST_SERVER_CONFIG_PATH_PATTERN_H_
#define BALLAST_SERVER_CONFIG_PATH_PATTERN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// `path` under `directory` unless it is absolute.
std::string ResolvePath(absl::string_view directory, absl::string_view path);

// The files that `pattern` names. Braces are expanded first ({a,b}, {000..007}
// with its leading zeros, nested), then globs (* ? [...]) are matched against
// the file system; relative patterns start at `directory`. Files come in the
// order of the braces, and sorted by name within a glob; none comes twice.
// Errors: INVALID_ARGUMENT (unbalanced brace, more than a million names),
// NOT_FOUND (a name or glob that matches nothing, named).
absl::StatusOr<std::vector<std::string>> ExpandPath(absl::string_view directory,
                                                    absl::string_view pattern);

}  // namespace ballast

#endif  // BALLAST_SERVER_CONFIG_PATH_PATTERN_H_
