#ifndef BALLAST_SERVER_CORPUS_DATA_PATH_H_
#define BALLAST_SERVER_CORPUS_DATA_PATH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// OK if `path`, from a dataset, may be followed: relative, UTF-8, 1 to 4096
// bytes, without `..` and control characters (so messages can show it as it
// is). Otherwise INVALID_ARGUMENT with the path and the reason.
absl::Status CheckDataPath(absl::string_view path);

// Formats `bytes` of a dataset for messages. Escapes control characters, and
// non-ASCII bytes unless the whole is UTF-8. Cuts after 200 bytes.
std::string Printable(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_DATA_PATH_H_
