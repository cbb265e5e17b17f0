#ifndef BALLAST_SERVER_CORPUS_DATA_PATH_H_
#define BALLAST_SERVER_CORPUS_DATA_PATH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ballast {

// Whether `path`, which a dataset holds, is one that we follow: relative,
// UTF-8, 1 to 4096 bytes, without `..` and control characters (so it can stand
// in messages as it is). INVALID_ARGUMENT with the path and the reason where it
// is not.
absl::Status CheckDataPath(absl::string_view path);

// `bytes` of a dataset for messages: control characters, and all that is not
// ASCII where it is not UTF-8, are escaped; cut after 200 bytes.
std::string Printable(absl::string_view bytes);

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_DATA_PATH_H_
