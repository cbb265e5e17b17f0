#ifndef BALLAST_COMMON_SMALL_FILE_H_
#define BALLAST_COMMON_SMALL_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace ballast {

// Reads a regular file of at most `most` bytes: a key, a certificate, a list of
// tokens. Never waits for a pipe. Blocks on the disk. Errors begin with the
// path: NOT_FOUND, PERMISSION_DENIED and others of the disk; INVALID_ARGUMENT
// (not a regular file, too large).
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most);

// Whether every user of the machine may read the file; false if it is missing.
bool AnyoneMayRead(const std::string& path);

}  // namespace ballast

#endif  // BALLAST_COMMON_SMALL_FILE_H_
