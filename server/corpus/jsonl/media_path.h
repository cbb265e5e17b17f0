#ifndef BALLAST_SERVER_CORPUS_JSONL_MEDIA_PATH_H_
#define BALLAST_SERVER_CORPUS_JSONL_MEDIA_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Refuses a path of an "image" or a "video" (`medium`) that fails
// CheckDataPath, or that names something else than a file of its own, a URL or
// a member of a zip archive, by its kind (bad_kind.h): INVALID_ARGUMENT.
absl::Status CheckMediaPath(absl::string_view medium, absl::string_view path);

// Whether two paths may be of one file, from one folder or another: one ends
// with the other. Pure.
bool IsSameFile(absl::string_view one, absl::string_view other);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_JSONL_MEDIA_PATH_H_
