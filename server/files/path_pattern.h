#ifndef BALLAST_SERVER_FILES_PATH_PATTERN_H_
#define BALLAST_SERVER_FILES_PATH_PATTERN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// A path into a store: "s3://bucket/folder/name.tar".
struct StoreUrl {
  std::string scheme;  // s3, gs, abfs, hf, https, http or file
  // "bucket/folder/name.tar"; for `file` the absolute path, for `hf`
  // "datasets/OWNER/NAME@REVISION/…", for `https` "HOST/…".
  std::string path;
};

// Reads "SCHEME://BUCKET/KEY"; the key may be empty. Errors: INVALID_ARGUMENT
// (an unknown scheme, no bucket, no data set of the hub, a user name or
// password, `.` or `..` or an empty name between slashes), naming the path.
// Pure.
absl::StatusOr<StoreUrl> ParseStoreUrl(absl::string_view url);

// Whether `path` names an object of a store: "SCHEME://…". Pure.
bool IsStoreUrl(absl::string_view path);

// `path` under `directory`, or `path` itself if it is absolute or IsStoreUrl;
// `directory` for an empty path or ".". An empty directory is the current one.
std::string ResolvePath(absl::string_view directory, absl::string_view path);

// Expands the braces of `pattern` like a shell: {a,b}, and {000..007} keeping
// leading zeros; braces may be nested. Globs are left unchanged. Accesses no
// file. Errors: INVALID_ARGUMENT (unbalanced or empty braces, a range that is
// not of numbers, more than a million names).
absl::StatusOr<std::vector<std::string>> ExpandBraces(
    absl::string_view pattern);

// Lists the files that `pattern` names. Braces are expanded first, then globs
// (* ? [...], escaped by a backslash) are matched against the file system.
// Relative patterns start at `directory`, in which no character is special.
// Globs do not match directories and hidden names. Files are in the order of
// the braces, sorted by byte within a glob; none is listed twice. Blocks on the
// file system. Errors: INVALID_ARGUMENT (as ExpandBraces; a name that is a
// directory), NOT_FOUND (a name or glob without a match, named),
// PERMISSION_DENIED (a directory that cannot be listed).
absl::StatusOr<std::vector<std::string>> ExpandPath(absl::string_view directory,
                                                    absl::string_view pattern);

}  // namespace ballast

#endif  // BALLAST_SERVER_FILES_PATH_PATTERN_H_
